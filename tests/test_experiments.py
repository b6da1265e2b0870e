"""The registrations of this repository: each plan is shown, and locks or says what is missing."""

import json
import shutil
from pathlib import Path

import pytest

from arflow_eval import cli
from arflow_eval.registration.composing import composed
from arflow_eval.registration.plan import read_plan
from arflow_eval.registration.verifying import verify

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
NAMES = sorted(folder.name for folder in EXPERIMENTS.iterdir() if folder.is_dir())
MISSING = {
    "ar_sampled_draws": (
        "arms.greedy: panel.plan and panel.digest and panel.root open",
        "arms.t13",
    ),
    "molmoact2_out_of_band": ("the store of molmoact2-so100@release is not here", "er_60k@15000"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with copies of the registrations."""
    shutil.copytree(EXPERIMENTS, tmp_path / "experiments")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", NAMES)
def test_a_registration_is_shown_as_a_page(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["prereg", "show", name]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"# {name}\n")
    for part in ("## Arms", "## Reads"):
        assert part in page


@pytest.mark.parametrize("name", MISSING)
def test_a_plan_with_open_questions_is_not_locked_and_names_them(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["prereg", "lock", name, "--allow-dirty"]) == 2
    said = capsys.readouterr()
    assert all(words in said.out + said.err for words in MISSING[name])
    assert f"open questions in {name}" in said.err
    assert not (here / "experiments" / name / "lock.json").exists()


def test_pusht_fairness_leaves_nothing_open() -> None:
    document, questions = composed(read_plan(EXPERIMENTS / "pusht_fairness"))
    assert questions == []
    assert {arm["panel"]["name"] for arm in document["arms"].values()} == {"pusht_sealed"}
    assert json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("name", [it for it in NAMES if (EXPERIMENTS / it / "lock.json").is_file()])
def test_what_was_locked_here_is_what_it_was(name: str) -> None:
    found = verify(EXPERIMENTS / name)
    assert [each for each in found if each.state == "changed"] == []
    assert {each.state for each in found if not each.what.startswith("store")} == {"intact"}

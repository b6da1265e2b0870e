"""A policy of one's own: the docs page runs, faults are one line, an edit is another store."""

import re
from pathlib import Path

import pytest

from arflow_eval import cli, refusal, store

PAGE = Path(__file__).parents[1] / "docs" / "policies.md"
BLOCKS = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = ("evaluate", "model=python", "panel=pusht_q4")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(here: Path, name: str, body: str) -> str:
    (here / f"{name}.py").write_text(f"import numpy as np\n\n\n{body}\n")
    return f"model.function={name}:predict"


def test_the_page_runs_as_it_stands(here: Path) -> None:
    blocks = BLOCKS.findall(PAGE.read_text(encoding="utf-8"))
    (source,) = (text for kind, text in blocks if kind == "python")
    (command,) = (text for kind, text in blocks if kind == "console")
    assert source.count("\n") <= 15
    (here / "my_policy.py").write_text(source)
    words = command.split()[2:]
    assert words[0] == "arflow_eval.evaluate"
    assert cli.main(["evaluate", *words[1:]]) == 0
    (run,) = (here / "outputs").glob("drift-pusht-*")
    opened = store.open_run(run)
    assert opened.sizes["draw"] == 1
    assert opened.attrs["config"]["model"]["function"] == "my_policy:drift"


def test_an_edited_policy_is_another_store(here: Path) -> None:
    for end in ("1)", "1)  # a comment", "2)"):
        named = write(here, "edited", f"def predict(seen):\n    return np.full((50, 2), {end}")
        assert cli.main([*RUN, named]) == 0
    assert len(list((here / "outputs").iterdir())) == 3  # its text counts, comments too


def test_a_shorter_horizon_is_stated_by_the_function(here: Path) -> None:
    named = write(
        here, "short", "def predict(seen):\n    return np.ones((30, 2))\n\n\npredict.horizon = 30"
    )
    assert cli.main([*RUN, named]) == 0
    (run,) = (here / "outputs").iterdir()
    assert store.open_run(run).attrs["horizon"] == 30


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("def predict(seen):\n    return np.ones((50, 3))", refusal.GUARD, "float64 [50, 3]"),
        ("def predict(seen):\n    return np.ones((10, 2))", refusal.GUARD, "set predict.horizon"),
        ("def predict(seen):\n    return 'ab'", refusal.GUARD, "returned <U2"),
        ("def predictt(seen):\n    return 1", refusal.USAGE, "did you mean faulty:predictt?"),
    ],
)
def test_a_faulty_function_is_one_line(
    body: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*RUN, write(Path.cwd(), "faulty", body)]) == code
    (line,) = (it for it in capsys.readouterr().err.splitlines() if it.startswith("error"))
    assert said in line


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=python"], "model.function"),
        (["model=python", "model.function=no_such:predict"], "there is no module no_such"),
        (["model=python", "model.function=os.system"], "expected package.module:function"),
        (["model=hold_last", "model.function=a:b"], "choose model=python"),
    ],
)
def test_a_name_that_leads_nowhere_is_a_usage_error(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", *words, "panel=pusht_q4"]) == refusal.USAGE
    assert said in capsys.readouterr().err

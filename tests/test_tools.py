"""The scripts that made what is bundled can be run again."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from arflow_eval.panel.bundled import DATA

TOOLS = Path(__file__).parent.parent / "tools"


def imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_frozen_panels_are_what_their_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = imported("make_pusht_panels")
    monkeypatch.setattr(script, "DATA", tmp_path)
    script.main()
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == sorted(p.name for p in DATA.glob("*.json"))
    for name in made:
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes()


def test_the_training_scripts_see_training_episodes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    script = imported("pusht_training")
    lists = json.loads((DATA / "pusht_split.json").read_text())
    final, scored = script.split(development=False)
    chosen, aside = script.split(development=True)
    assert final == lists["training"]
    assert scored == lists["public"]
    assert sorted(chosen + aside) == sorted(lists["training"])
    assert not set(final) & {*lists["public"], *lists["sealed"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ar_tiny", "flow_tiny"])
def test_a_policy_can_be_trained_anew(tmp_path: Path, name: str) -> None:
    command = [sys.executable, str(TOOLS / f"train_{name}.py"), "--out", str(tmp_path / name)]
    subprocess.run([*command, "--steps", "10"], check=True, capture_output=True, timeout=280)
    made = {path.name for path in (tmp_path / name).iterdir()}
    assert {"config.json", "model.safetensors", "norm_stats.json", "training_log.json"} <= made

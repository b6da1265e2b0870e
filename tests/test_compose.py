import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from arflow_eval import compose as composing
from arflow_eval import refusal, settings
from arflow_eval.compose import application, call_target, compose, conf_dir

ARMS = ["arms.treatment=outputs/A", "arms.control=outputs/B"]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test in an empty folder of its own, with empty checkpoints in place of trained ones."""
    bundled = tmp_path.parent / f"{tmp_path.name}_bundled"
    for name in ("ar_tiny", "flow_tiny"):
        (bundled / name).mkdir(parents=True)
        for file in settings.CHECKPOINT_FILES:
            (bundled / name / file).touch()
    monkeypatch.setattr(settings, "BUNDLED", bundled)
    monkeypatch.chdir(tmp_path)


def never(_: dict[str, Any]) -> int:
    raise AssertionError("a refused command ran")


def statuses(by_seed: dict[int, int], ran: list[int]) -> Callable[[dict[str, Any]], int]:
    """A task whose status is chosen by its seed, and which notes that it ran."""

    def task(config: dict[str, Any]) -> int:
        ran.append(config["seed"])
        return by_seed[config["seed"]]

    return task


REFUSED = [
    ("evaluate decode.drwas=3", "did you mean decode.draws?"),
    ("evaluate +decode.drwas=3", "did you mean decode.draws?"),
    ("evaluate ++decode.drwas=3", "did you mean decode.draws?"),
    ("evaluate ~decode.drwas", "did you mean decode.draws?"),
    ("evaluate +decode.temprature=0.7", "did you mean decode.T?"),
    ("evaluate draws=3", "did you mean decode.draws?"),
    ("evaluate experiment_name=x", "unknown key experiment_name"),
    ("evaluate +decode.T=1", "write decode.T=1"),
    ("evaluate ++seed=1", "write seed=1"),
    ("evaluate ~seed", "every key present"),
    ("evaluate modle=ar_tiny", "did you mean model?"),
    ("evaluate model=ar_tny", "did you mean model=ar_tiny?"),
    ("evaluate model=ar_tny", "one of ar100k, ar_tiny, "),
    ("evaluate model=null", "unknown option model=null"),
    ("evaluate +model=flow_tiny", "write model=flow_tiny"),
    ("evaluate model@panel=flow_tiny", "write model=flow_tiny"),
    ("evaluate ~model", "write model="),
    ("evaluate hydra/launcher=basicc", "did you mean hydra/launcher=basic?"),
    ("evaluate hydra.lancher=1", "Could not override 'hydra.lancher'"),
    ("evaluate decode.draws=ten", "decode.draws=ten; expected a whole number"),
    ("evaluate seed=null", "seed=null; expected a whole number"),
    ("evaluate seed={a:1}", "a single value"),
    ("evaluate shard=3", "shard.index, shard.count"),
    ("evaluate store={rot:x}", "Key 'rot'"),
    ("evaluate seed=${windw}", "'windw' not found"),
    ("evaluate decode.solver=eulr", "did you mean decode.solver=euler?"),
    ("evaluate decode._target_=os.system", "starts with arflow_eval."),
    ("evaluate panel._target_=arflow_evil.x", "starts with arflow_eval."),
    ("evaluate model.path=no/such", "no checkpoint at no/such"),
    ("evaluate decode.T=[", "cannot read the override 'decode.T=['"),
    ("evaluate decode", "cannot read the override 'decode'"),
    ("evaluate =3", "cannot read the override '=3'"),
    ("evaluate decode.T=0.7,1.0", "put --multirun first"),
    ("evaluate seed=1 --multirun window=3", "put --multirun first or last"),
    ("evaluate --mutlirun", "did you mean --multirun?"),
    ("evaluate --cfg=jb", "invalid choice: 'jb'"),
    ("evaluate --cfg job --multirun", "exclude each other"),
    ("evaluate --config-name=other", "--config-dir DIR"),
    ("evaluate --config-dir=no/such", "no/such; expected --config-dir DIR"),
    ("evaluate --cfg job decode.drwas=3", "did you mean decode.draws?"),
    ("evaluate --multirun seed=1 decode.draws=1,0 decode=draws", "decode.draws=0"),
    ("evaluate --multirun decode.drwas=1,2", "did you mean decode.draws?"),
    ("evaluate --multirun model=ar_tiny,flow_tny", "did you mean model=flow_tiny?"),
    ("read", "add arms.treatment=… arms.control=…"),
    ("read arms.treatment=outputs/A", "arms.control not given"),
    ("read arms.treatmnt=outputs/A", "did you mean arms.treatment?"),
    ("read read=paired_dleta", "did you mean read=paired_delta?"),
    ("read read.confidence=high", "read.confidence=high; expected a number"),
    ("read decode.draws=3", "unknown key decode.draws"),
]


@pytest.mark.parametrize(("command", "said"), REFUSED)
def test_what_cannot_run_is_one_line_and_exit_code_2(
    command: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    name, *argv = command.split()
    assert application(name, never, argv) == 2  # type: ignore[arg-type]
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert shown.out == ""


def test_a_sealed_panel_is_guarded_before_its_frames_are_read() -> None:
    with pytest.raises(refusal.Refusal, match="sealed") as refused:
        compose("evaluate", ["panel=pusht_sealed"])
    assert refused.value.exit_code == refusal.GUARD


def test_compose_works_any_number_of_times_in_one_process() -> None:
    first = compose("evaluate", ["decode=draws", "decode.T=0.7"])
    assert compose("read", ARMS)["arms"] == {"treatment": "outputs/A", "control": "outputs/B"}
    assert compose("evaluate", ["decode=draws", "decode.T=0.7"]) == first
    assert first["decode"]["T"] == 0.7
    assert "hydra" not in first


def test_compose_works_inside_a_running_job() -> None:
    inner: list[dict[str, Any]] = []

    def task(_: dict[str, Any]) -> int:
        inner.append(compose("read", ARMS))
        return 0

    assert application("evaluate", task, ["--multirun", "seed=1,2"]) == 0
    assert [config["read"]["name"] for config in inner] == ["paired_delta"] * 2


def options() -> list[tuple[str, str]]:
    """Every option of every group of ours, found through conf/."""
    return [
        (path.parent.name, path.stem)
        for path in sorted(conf_dir().glob("*/*.yaml"))
        if path.parent.name != "hydra"
    ]


def own_keys(group: str, option: str) -> set[str]:
    """The keys that an option gives its group."""
    node: Any = OmegaConf.load(conf_dir() / group / f"{option}.yaml")
    return set(node.get(group, node))


def required_keys(group: str, option: str) -> set[str]:
    """The keys that an option leaves for its user to give."""
    node = OmegaConf.load(conf_dir() / group / f"{option}.yaml")
    return set(OmegaConf.missing_keys(node))


@pytest.mark.parametrize(("group", "option"), options())
def test_every_option_composes_and_stays_within_the_package(group: str, option: str) -> None:
    if (group, option) == ("panel", "pusht_sealed"):
        config = {"panel": OmegaConf.load(conf_dir() / "panel" / "pusht_sealed.yaml")}
    elif group == "read":
        arms = OmegaConf.load(conf_dir() / "read" / f"{option}.yaml")["arms"]
        config = compose("read", [f"read={option}", *(f"arms.{role}=outputs/A" for role in arms)])
    else:
        required = [f"{group}.{key}=bundled:ar_tiny" for key in required_keys(group, option)]
        config = compose("evaluate", [f"{group}={option}", *required])
    assert config[group]["name"] == option
    if group != "gate":  # which is numbers alone
        assert config[group]["_target_"].startswith("arflow_eval.")


@pytest.mark.parametrize("group", sorted({group for group, _ in options()} - {"read"}))
def test_the_options_of_a_group_have_the_same_keys(group: str) -> None:
    keys = {option: own_keys(group, option) for name, option in options() if name == group}
    assert len({frozenset(names) for names in keys.values()}) == 1, keys


def test_a_sweep_runs_every_job_and_ends_with_the_worst_status() -> None:
    ran: list[int] = []
    task = statuses({1: 4, 2: 0, 3: 3, 4: 2, 5: 1}, ran)
    assert application("evaluate", task, ["--multirun", "seed=1,2,3,4,5"]) == 3
    assert ran == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("found", "worst"),
    [((1, 4, 3, 5), 5), ((1, 4, 3), 3), ((2, 4), 4), ((1, 2), 2), ((7, 0), 1), ((0, 0), 0)],
)
def test_the_order_of_badness_is_5_3_4_2_1(found: tuple[int, ...], worst: int) -> None:
    assert composing.command_line.jobs.worst(found) == worst


def test_equal_jobs_of_a_sweep_run_once_and_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[float] = []

    def task(config: dict[str, Any]) -> int:
        ran.append(config["decode"]["T"])
        return 0

    argv = ["--multirun", "decode=draws", "decode.T=0.7,0.70,1.0,null"]
    assert application("evaluate", task, argv) == 0
    assert ran == [0.7, 1.0]
    first, second = capsys.readouterr().err.splitlines()
    assert first == "note: decode=draws decode.T=0.7 is listed twice; it runs once"
    assert second.startswith("note: decode=draws decode.T=null is the same run as decode=draws")


def test_a_job_that_breaks_leaves_the_others_running(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[int] = []

    def task(config: dict[str, Any]) -> int:
        ran.append(config["seed"])
        if config["seed"] == 1:
            raise refusal.damage("a flipped bit", expected="the\nsealed bytes", remedy="restore")
        if config["seed"] == 2:
            raise ZeroDivisionError("of seed 2")
        if config["seed"] == 3:
            sys.exit(9)
        return 0

    assert application("evaluate", task, ["seed=1,2,3,4", "-m"]) == 5
    assert ran == [1, 2, 3, 4]
    shown = capsys.readouterr().err
    assert "error: a flipped bit; expected the sealed bytes; restore\n" in shown
    assert "Traceback" in shown
    assert "ZeroDivisionError: of seed 2" in shown
    assert "sys.exit(9)" in shown


def test_an_interrupt_ends_the_sweep_with_130() -> None:
    ran: list[int] = []

    def task(config: dict[str, Any]) -> int:
        ran.append(config["seed"])
        raise KeyboardInterrupt

    assert application("evaluate", task, ["-m", "seed=1,2"]) == 130
    assert ran == [1]


@pytest.mark.parametrize("status", [0, 1, 3, 4, 5])
def test_a_single_run_returns_its_status_and_leaves_no_file(status: int, tmp_path: Path) -> None:
    assert application("evaluate", lambda _: status, []) == status
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_leaves_no_file(tmp_path: Path) -> None:
    seen: list[str] = []

    def task(_: dict[str, Any]) -> int:
        seen.append(os.getcwd())  # noqa: PTH109 - the process's own, not a path to work with
        return 0

    assert application("evaluate", task, ["-m", "seed=1,2", "hydra.sweeper.max_batch_size=1"]) == 0
    assert seen == [str(tmp_path)] * 2
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_is_shown_even_where_values_are_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert application("read", never, ["--cfg", "job"]) == 0
    assert "treatment: ???" in capsys.readouterr().out


def test_a_sweep_reaches_options_by_a_pattern() -> None:
    ran: list[str] = []

    def task(config: dict[str, Any]) -> int:
        ran.append(config["model"]["name"])
        return 0

    assert application("evaluate", task, ["-m", "model=glob(state*)"]) == 0
    assert ran == ["state_copy", "state_copy_norm"]


def test_help_has_examples_and_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert application("evaluate", never, ["--help"]) == 0
    shown = capsys.readouterr().out
    assert "arflow-eval evaluate decode=draws decode.T=0.7" in shown
    assert "model: ar100k, ar_tiny, " in shown


def test_a_folder_of_ones_own_adds_options(tmp_path: Path) -> None:
    (tmp_path / "my conf" / "model").mkdir(parents=True)
    mine = (conf_dir() / "model" / "hold_last.yaml").read_text().replace("hold_last", "mine", 2)
    (tmp_path / "my conf" / "model" / "mine.yaml").write_text(mine)
    ran: list[str] = []

    def task(config: dict[str, Any]) -> int:
        ran.append(config["model"]["name"])
        return 0

    assert application("evaluate", task, ["--config-dir", "my conf", "model=mine"]) == 0
    assert ran == ["mine"]


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "arflow_evil.x",
        "arflow_eval.no_such.load",
        "arflow_eval.panel.bundled.pushd",
        "arflow_eval.panel.bundled.Path",
        "arflow_eval.panel.bundled.hashlib.sha256",
    ],
)
def test_only_functions_of_this_package_are_called(target: str) -> None:
    with pytest.raises(refusal.Refusal) as refused:
        call_target(target)
    assert refused.value.exit_code == refusal.USAGE


def test_a_target_is_the_function_it_names() -> None:
    assert call_target("arflow_eval.compose.targets.call_target") is call_target


def test_composing_loads_no_model_stack(tmp_path: Path) -> None:
    script = (
        "import sys, arflow_eval.compose as c\n"
        "c.compose('read', ['arms.treatment=a', 'arms.control=b'])\n"
        "sys.exit(str({'torch', 'transformers', 'zarr'} & set(sys.modules) or ''))"
    )
    source = str(Path(composing.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip() == ""
    assert list(tmp_path.iterdir()) == []


def test_hydras_own_node_may_name_hydras_code_alone(capsys: pytest.CaptureFixture[str]) -> None:
    callback = "+hydra.callbacks.mine={_target_: builtins.print, _args_: [run]}"
    assert application("evaluate", lambda _: 0, ["model=hold_last", callback]) == refusal.USAGE
    shown = capsys.readouterr()
    assert "starts with hydra. or hydra_plugins." in shown.err
    assert shown.out == ""

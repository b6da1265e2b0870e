"""The rules of the house, read from the source."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import arflow_eval

SOURCE = Path(arflow_eval.__file__).parent
ENTRY_POINTS = {
    *("evaluate", "read", "demo", "prereg", "status", "verify", "report", "convert"),
    *("diff", "doctor", "cli", "__main__", "panel_check"),
}
GROUPS = {
    "panel": set(),
    "model": {"codec", "decode"},
    "decode": set(),
    "codec": set(),
    "stats": set(),
    "reads": {"stats"},
}
HEAVY = {"torch", "transformers", "zarr"}
AXES = {
    *("frame", "draw", "step", "action", "row", "state", "position", "id"),  # of the store
    *("past", "earlier", "index", "episode", "height", "width", "colour"),  # of a panel
    *("element", "word", "feature", "context", "block"),  # of noise and networks
    *("head", "query_head", "hidden", "width"),  # of a trunk and its attention
    *("byte", "resample", "cluster"),  # of digests and intervals
}
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}


def module_name(path: Path) -> str:
    """`arflow_eval.panel.plan` of its path."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def room(module: str) -> str:
    """The first name below the package: `panel` of `arflow_eval.panel.plan`."""
    return [*module.split("."), "", ""][1]


def imported(nodes: Iterator[ast.AST]) -> set[str]:
    """Dotted names that import statements bring in, a module of ours as far down as it is one."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.add(full if full in MODULES else node.module)
    return names


def anywhere(module: str) -> set[str]:
    return imported(ast.walk(tree(MODULES[module])))


def at_import(module: str) -> set[str]:
    """What importing a module imports: not what its functions or type checkers do."""
    return imported(_run_at_import(tree(MODULES[module]).body))


def _run_at_import(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        for block in ("body", "orelse", "finalbody"):
            yield from _run_at_import(getattr(node, block, []))
        for handler in getattr(node, "handlers", []):
            yield from _run_at_import(handler.body)


def reached(module: str) -> set[str]:
    """Everything that importing a module imports, in turn. Parents come with their children."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        if name in MODULES:
            parents = [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
            waiting += [*parents, *at_import(name)]
    return found


def axes(module: str) -> set[str]:
    """The single axes of jaxtyping annotations: `Float[Tensor, "row step action"]`."""
    found: set[str] = set()
    for node in ast.walk(tree(MODULES[module])):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            kind = ast.unparse(node.value).rpartition(".")[2]
            last = node.slice.elts[-1]
            if re.fullmatch(r"(Float|Int|UInt|Bool|Shaped|Num|Real|Inexact)\d*", kind):
                assert isinstance(last, ast.Constant), ast.unparse(node)
                found |= {axis for axis in str(last.value).split() if axis[0] not in "*.0123456789"}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_only_compose_and_the_launcher_import_hydra(module: str) -> None:
    if room(module) not in {"compose", "launcher"}:
        tops = {name.split(".")[0] for name in anywhere(module)}
        assert not tops & {"hydra", "omegaconf", "hydra_plugins", "submitit"}


@pytest.mark.parametrize(
    "module",
    [
        name
        for name in MODULES
        if room(name)
        in {
            *("read", "reading", "reads", "stats", "store", "compose", "panel", "cli", "runs"),
            *("convert", "exchange", "verify", "verification", "doctor", "doctoring"),
            *("registration", "prereg", "diff"),
        }
    ],
)
def test_reading_needs_no_model_stack(module: str) -> None:
    tops = {name.split(".")[0] for name in reached(module)}
    assert not tops & {"torch", "transformers"}


@pytest.mark.parametrize("module", MODULES)
def test_groups_import_only_the_groups_they_stand_on(module: str) -> None:
    group = room(module)
    if group in GROUPS:
        others = {room(name) for name in anywhere(module) if name.startswith("arflow_eval.")}
        assert others & set(GROUPS) <= GROUPS[group] | {group}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_below_an_entry_point_imports_one(module: str) -> None:
    rooms = {room(name) for name in anywhere(module) if name.startswith("arflow_eval.")}
    allowed = {"cli"} if room(module) == "__main__" else set()
    if room(module) == "demo":  # a demo is the other entry points, one after the other
        allowed = {"evaluate", "read"}
    if module == "arflow_eval.panel.__main__":  # so that python -m finds the command
        allowed = {"panel_check"}
    assert rooms & ENTRY_POINTS <= allowed


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_named_for_what_it_holds(module: str) -> None:
    assert not set(module.split(".")) & VAGUE


@pytest.mark.parametrize("module", MODULES)
def test_only_the_job_boundary_catches_whatever_comes(module: str) -> None:
    caught = [
        ast.unparse(node.type) if node.type else "everything"
        for node in ast.walk(tree(MODULES[module]))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or re.search(r"\b(Base)?Exception\b", ast.unparse(node.type)))
        and not _raises_again(node)
    ]
    boundaries = {"arflow_eval.jobs", "arflow_eval.codec.merges"}  # each says why
    assert caught == (["Exception"] if module in boundaries else [])


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


@pytest.mark.parametrize("module", MODULES)
def test_axes_come_from_the_vocabulary(module: str) -> None:
    assert axes(module) <= AXES


def test_no_axis_of_the_vocabulary_is_unused() -> None:
    assert set().union(*map(axes, MODULES)) >= AXES


def test_the_package_imports_no_heavy_library_and_no_entry_point() -> None:
    names = reached("arflow_eval")
    assert not {name.split(".")[0] for name in names} & HEAVY
    assert not {room(name) for name in names} & ENTRY_POINTS


@pytest.mark.parametrize(
    "room_name",
    [
        "read",
        "reading",
        "reads",
        "stats",
        "store",
        "status",
        "costs",
        "verify",
        "convert",
        "doctor",
        "registration",
        "prereg",
    ],
)
def test_a_process_that_reads_holds_no_model_stack(room_name: str, tmp_path: Path) -> None:
    if f"arflow_eval.{room_name}" not in MODULES:
        pytest.skip(f"arflow_eval.{room_name} does not exist")
    script = (
        f"import sys, arflow_eval; assert not {HEAVY} & set(sys.modules), 'heavy package'\n"
        f"import arflow_eval.{room_name}\n"
        "assert not {'torch', 'transformers'} & set(sys.modules), 'model stack'"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

"""What made a result: digests of configuration, weights and code, and the environment around it.

A digest here says the same thing on every machine: nothing in it depends on where files lie, who
runs the program or which Python reads the code. The environment is recorded beside results and is
never part of what they are called. It names no person, no machine and no path.
"""

import ast
import hashlib
import io
import json
import platform
import shutil
import subprocess
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal

PACKAGE: Final = Path(__file__).parent
LIBRARIES: Final = ("numpy", "tokenizers", "torch", "transformers", "xarray", "zarr")
TYPE_CHECKING: Final = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def canonical(value: Any) -> bytes:
    """A JSON value as the one text that stands for it: sorted keys, no spaces, UTF-8.

    Raises:
        ValueError: the value holds NaN or an infinity, which JSON has no words for.
        TypeError: the value is not made of dicts, lists, strings, numbers, booleans and None.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest(value: Any) -> str:
    """SHA-256 (hex) of a JSON value's canonical text."""
    return hashlib.sha256(canonical(value)).hexdigest()


def folder_digest(path: Path) -> str:
    """SHA-256 (hex) over the names and contents of a checkpoint folder's files.

    The folder's own place and name do not count, nor do notes (*.md) and hidden files.

    Raises:
        Refusal: there is no such folder, or it holds nothing that counts.
    """
    files = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    counted = {
        name: file
        for name, file in files.items()
        if file.suffix != ".md" and not any(part.startswith(".") for part in Path(name).parts)
    }
    if not counted:
        raise _no_checkpoint(path)
    return digest([[name, _file_digest(counted[name])] for name in sorted(counted)])


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _no_checkpoint(path: Path) -> refusal.Refusal:
    known = [other.name for other in path.parent.glob("*/")] if path.parent.is_dir() else []
    close = refusal.nearest(path.name, set(known) - {path.name})
    return refusal.usage(
        f"{path} is empty" if path.is_dir() else f"no folder {path}",
        expected="a folder with a checkpoint's files",
        remedy=f"did you mean {path.parent / close}?" if close else "check the path",
    )


def code_digest(modules: Sequence[str], *, package: Path = PACKAGE) -> str:
    """SHA-256 (hex) over the code of modules and of all they import from the same package.

    Imports are followed as they are written, those inside functions too, but not those under
    `if TYPE_CHECKING`. The packages a module lies in count as imported by it, save the topmost:
    its `__init__` only offers names, and counts where a name is taken from it. Comments,
    docstrings, blank lines and line breaks within a statement are not code.

    Args:
        modules: dotted names, such as `arflow_eval.reading`.
        package: the folder of the package they belong to.

    Raises:
        ValueError: a module does not exist.
    """
    return digest(_texts(modules, package))


def module_digests(modules: Sequence[str], *, package: Path = PACKAGE) -> dict[str, str]:
    """SHA-256 (hex) of each module that `code_digest` counts: which of them changed, by name."""
    return {name: digest(text) for name, text in sorted(_texts(modules, package).items())}


def _texts(modules: Sequence[str], package: Path) -> dict[str, list[str]]:
    """The tokens of modules, and of all they import from the same package."""
    waiting = [_known_module(name, package) for name in modules]
    texts: dict[str, list[str]] = {}
    while waiting:
        name = waiting.pop()
        if name in texts:
            continue
        source = _file(name, package).read_text(encoding="utf-8")
        tree = ast.parse(source)
        texts[name] = list(_tokens(source, tree))
        waiting += [*_imports(name, tree, package), *_enclosing(name)]
    return texts


def _known_module(name: str, package: Path) -> str:
    if not _exists(name, package):
        raise refusal.usage(
            f"no module {name} in the package {package.name}",
            expected="a module of the package in every _target_",
            remedy="check the _target_ of the option's yaml",
        )
    return name


def _exists(name: str, package: Path) -> bool:
    return name.partition(".")[0] == package.name and _file(name, package).is_file()


def _file(name: str, package: Path) -> Path:
    place = package.joinpath(*name.split(".")[1:])
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _enclosing(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(2, len(parts))]


def _imports(name: str, tree: ast.Module, package: Path) -> Iterator[str]:
    """The package's modules that a module names in its imports."""
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(name, node, package)
            inner = [f"{base}.{alias.name}" for alias in node.names]
            named = [each if _exists(each, package) else base for each in inner]
        else:
            continue
        yield from (each for each in named if _exists(each, package))


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, except the bodies of `if TYPE_CHECKING`."""
    yield node
    below: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test) in TYPE_CHECKING:
        below = node.orelse
    for child in below:
        yield from _executed(child)


def _absolute(name: str, node: ast.ImportFrom, package: Path) -> str:
    if not node.level:
        return node.module or ""
    is_package = _file(name, package).name == "__init__.py"
    parts = name.split(".")
    parents = parts[: len(parts) - node.level + is_package]
    return ".".join([*parents, *([node.module] if node.module else [])])


def _tokens(source: str, tree: ast.Module) -> Iterator[str]:
    """The code of a module, token by token, the same under every version of Python."""
    lines = source.splitlines(keepends=True)
    docstrings = _docstrings(tree)
    layout = {tokenize.INDENT: "INDENT", tokenize.DEDENT: "DEDENT", tokenize.NEWLINE: "NEWLINE"}
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
    in_docstring = False
    for kind, text, start in _whole_strings(source, lines):
        if start in docstrings:
            in_docstring = True
        elif in_docstring:  # what ends the docstring's statement, or joins its parts
            in_docstring = kind != tokenize.NEWLINE
        elif kind not in skipped:
            yield layout.get(kind, text)


def _docstrings(tree: ast.Module) -> set[tuple[int, int]]:
    """Where each docstring starts: line and column."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(tree)
        if isinstance(node, holders) and ast.get_docstring(node, clean=False) is not None
    }


def _whole_strings(source: str, lines: list[str]) -> Iterator[tuple[int, str, tuple[int, int]]]:
    """Kind, text and start of every token, an f-string as one (Python 3.12 splits them)."""
    opening = getattr(tokenize, "FSTRING_START", None)
    closing = getattr(tokenize, "FSTRING_END", None)
    depth = 0
    first = (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == opening:
            first = first if depth else token.start
            depth += 1
        elif token.type == closing:
            depth -= 1
            if not depth:
                yield tokenize.STRING, _between(lines, first, token.end), first
        elif not depth:
            yield token.type, token.string, token.start


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    chosen = lines[start[0] - 1 : end[0]]
    chosen[-1] = chosen[-1][: end[1]]
    chosen[0] = chosen[0][start[1] :]
    return "".join(chosen)


def environment(*, threads: int | None = None) -> dict[str, Any]:
    """What ran: Python, the kind of machine, library versions, threads and the code's commit.

    A library that is not installed has the version None; so have `commit` and `dirty` where the
    package does not lie in a git checkout.

    Args:
        threads: how many threads the computation used, where it is known.
    """
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "versions": {name: _version(name) for name in LIBRARIES},
        "threads": threads,
        **checkout(PACKAGE),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def checkout(folder: Path, *, file: str = "__init__.py") -> dict[str, Any]:
    """The commit that a folder's file is tracked at, and whether the checkout differs from it."""
    tracked = _git(folder, "ls-files", "--error-unmatch", file)
    commit = _git(folder, "rev-parse", "HEAD") if tracked else None
    changes = _git(folder, "status", "--porcelain") if commit else None
    return {
        "commit": commit.strip() if commit else None,
        "dirty": None if changes is None else bool(changes.strip()),
    }


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None where there is no git or it says no."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(folder), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 -- fixed words, no shell
    return answer.stdout if answer.returncode == 0 else None

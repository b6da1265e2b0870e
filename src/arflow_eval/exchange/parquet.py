"""The words of `convert parquet`: a store into a table, or stores into a folder of tables."""

import importlib
import importlib.util
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from arflow_eval import refusal, store
from arflow_eval.exchange.sources import Source, source
from arflow_eval.exchange.words import Kind, run
from arflow_eval.plain import say
from arflow_eval.store.disk import sync, sync_tree, writable

SUFFIX: Final = ".parquet"
KIND: Final = Kind(
    name="parquet",
    forms="convert parquet RUN OUT.parquet, or convert parquet RUN [RUN ...] OUT",
    purpose="One row a frame and draw, with every variable bit for bit.\nOUT.parquet is one file;"
    " any other OUT is a folder with a file a run, named by the run's folder.",
)


def main(argv: Sequence[str]) -> int:
    """Run `convert parquet` with the words after it; returns the exit code."""
    return run(KIND, _convert, argv)


def _convert(words: Sequence[str], _: Mapping[str, Any]) -> int:
    *runs, out = map(Path, words) if len(words) > 1 else [Path()]
    if not runs or (out.suffix == SUFFIX and len(runs) > 1):
        raise KIND.wrong(f"convert parquet {' '.join(words)}".strip())
    for path, rows in write_parquet(runs, out).items():
        say(f"wrote        {path} ({rows:,} rows)")
    return 0


def write_parquet(runs: Sequence[Path], out: Path) -> dict[Path, int]:
    """Export complete stores; returns the rows of every file. Needs pyarrow.

    All is written under a temporary name and renamed once it is whole and on disk.

    Args:
        runs: run folders, or the stores in them.
        out: a new file that ends in .parquet, for one run, or a new folder.

    Raises:
        Refusal: usage where `out` exists, pyarrow is missing or two runs have one name; a guard
            for a store that is not complete; damage for a row that is not what was written.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise refusal.usage(
            "pyarrow is not installed",
            expected="pyarrow, which writes Parquet",
            remedy="pip install 'arflow-eval[parquet]'",
        )
    if out.exists():
        raise refusal.usage(
            f"{out} exists",
            expected="a new file or folder",
            remedy="choose another name, or move it away",
        )
    sources = [_complete(path) for path in runs]
    temporary = out.with_name(f".{out.name}.{uuid.uuid4().hex}.partial")
    with writable(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            rows = _write(sources, out, temporary)
            temporary.rename(out)
        finally:
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            temporary.unlink(missing_ok=True)
        sync(out.parent)
    return rows


def _complete(path: Path) -> Source:
    store.open_run(path)  # refuses an incomplete store, and marks that give another fingerprint
    return source(path)


def _write(sources: Sequence[Source], out: Path, temporary: Path) -> dict[Path, int]:
    tables = importlib.import_module("arflow_eval.exchange.tables")  # brings pyarrow
    if out.suffix == SUFFIX:
        rows = {out: int(tables.write_table(sources[0], temporary))}
        sync(temporary)
        return rows
    names = [each.folder.resolve().name + SUFFIX for each in sources]
    if len(set(names)) < len(names):
        raise refusal.usage(
            f"two runs have the name {max(names, key=names.count).removesuffix(SUFFIX)}",
            expected="folders of different names, which name the files",
            remedy="export them into different folders",
        )
    temporary.mkdir()
    rows = {
        out / name: int(tables.write_table(each, temporary / name))
        for name, each in zip(names, sources, strict=True)
    }
    sync_tree(temporary)
    return rows

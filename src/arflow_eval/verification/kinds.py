"""What can be verified, known by what lies at a path. A new kind is one more entry here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arflow_eval import refusal
from arflow_eval.runs import is_run, run_folder, run_folders
from arflow_eval.verification.finding import Finding, Verified
from arflow_eval.verification.registrations import is_registration, verify_registration
from arflow_eval.verification.stores import verify_store

REPORT: Final = "report.json"


@dataclass(frozen=True)
class Kind:
    """One kind of artefact: whether a path is one, and what verifies it."""

    name: str
    recognises: Callable[[Path], bool]
    verify: Callable[[Path], Verified]


def _is_report(path: Path) -> bool:
    return path.name == REPORT or (path / REPORT).is_file()


def _refuse_report(path: Path) -> Finding:
    raise refusal.usage(
        f"{path} is a report, which verify cannot check yet",
        expected="a run folder, its predictions.zarr or a folder of runs",
        remedy="verify the stores that it was read from; the report lists their fingerprints",
    )


KINDS: Final[tuple[Kind, ...]] = (
    Kind("store", lambda path: is_run(run_folder(path)), verify_store),
    Kind("report", _is_report, _refuse_report),
    Kind("registration", is_registration, verify_registration),
)


def artefacts(path: Path) -> list[tuple[Kind, Path]]:
    """What lies at a path: an artefact of a known kind, or the runs of a folder.

    Raises:
        Refusal: usage, where there is nothing that can be verified.
    """
    for kind in KINDS:
        if kind.recognises(path):
            return [(kind, run_folder(path))]
    return [(KINDS[0], folder) for folder in run_folders(path)]

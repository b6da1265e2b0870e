"""A registration: its lock, panels, amendments, ledger, stores and reports."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arflow_eval.registration import chain, verifying
from arflow_eval.registration.plan import NAME


@dataclass(frozen=True)
class Registered:
    """What was found of a registration, part by part."""

    path: str
    parts: tuple[verifying.Checked, ...]

    @property
    def exit_code(self) -> int:
        """0 intact, 4 where something is missing, 5 where something was changed."""
        return verifying.exit_code(list(self.parts))

    @property
    def state(self) -> str:
        """The worst of its parts."""
        states = {each.state for each in self.parts}
        return next((it for it in ("changed", "missing") if it in states), "intact")

    def lines(self) -> Iterator[str]:
        """In words: its state, then every part."""
        whole = sum(each.state == "intact" for each in self.parts)
        yield f"{self.state:<9} {self.path}: {whole} of {len(self.parts)} parts intact"
        yield from (f"  {line}" for line in verifying.lines(list(self.parts)))

    def as_json(self) -> dict[str, Any]:
        """The same as JSON."""
        parts = [asdict(each) for each in self.parts]
        return {"path": self.path, "kind": "registration", "state": self.state, "parts": parts}


def is_registration(path: Path) -> bool:
    """Whether a folder holds a plan or a lock."""
    return any((path / name).is_file() for name in (NAME, chain.LOCK))


def verify_registration(path: Path) -> Registered:
    """Recompute a registration from its files; its stores and reports are looked for in outputs."""
    return Registered(path=str(path), parts=tuple(verifying.verify(path)))

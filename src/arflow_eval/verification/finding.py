"""What a verification says of one artefact."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from arflow_eval import refusal
from arflow_eval.contracts import FrameId

State = Literal["intact", "waiting", "damaged"]
EXIT_CODES: Final[dict[State, int]] = {
    "intact": 0,
    "waiting": refusal.WAITING,
    "damaged": refusal.DAMAGE,
}


SHOWN: Final = 10  # frames of a variable, and ranges of unwritten rows


class Verified(Protocol):
    """What the verification of any artefact says."""

    @property
    def exit_code(self) -> int:
        """0 intact, 4 waiting, 5 changed or damaged."""
        ...

    def lines(self) -> Iterator[str]:
        """In words, its state first."""
        ...

    def as_json(self) -> dict[str, Any]:
        """The same as JSON."""
        ...


@dataclass(frozen=True)
class Damage:
    """Rows that are not what was written.

    Attributes:
        variables: what has changed; where it is several, any of them may have.
        how: what was found.
        rows: panel rows, ascending; empty where it concerns the whole artefact.
        frames: their identities.
    """

    variables: tuple[str, ...]
    how: str
    rows: tuple[int, ...] = ()
    frames: tuple[FrameId, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The same as JSON, an entry a frame."""
        listed = [
            {"row": row, "repo": frame.repo, "episode": frame.episode, "frame": frame.frame_index}
            for row, frame in zip(self.rows, self.frames, strict=True)
        ]
        return {"variables": list(self.variables), "how": self.how, "frames": listed}


@dataclass(frozen=True)
class Finding:
    """What was found at a path.

    Attributes:
        kind: of the artefact.
        total: its frames.
        unwritten: ranges of rows that are not written yet.
        sealed: whether it was declared complete.
        fingerprint: the recorded one, of a complete artefact.
        damage: what is not as it was written, by variable.
    """

    path: str
    kind: str
    total: int
    unwritten: tuple[range, ...]
    sealed: bool
    fingerprint: str | None
    damage: tuple[Damage, ...]

    @property
    def state(self) -> State:
        """Damaged, else waiting for rows or for its last check, else intact."""
        if self.damage:
            return "damaged"
        return "waiting" if self.unwritten or not self.sealed else "intact"

    def lines(self) -> Iterator[str]:
        """In words: its state, what is unwritten, and the first frames of every damage."""
        yield f"{self.state:<9} {self.path}: {_said(self)}"
        for each in self.damage:
            yield f"  {', '.join(each.variables)}: {each.how}{_count(each)}"
            for row, frame in list(zip(each.rows, each.frames, strict=True))[:SHOWN]:
                place = f"{frame.repo} episode {frame.episode} frame {frame.frame_index}"
                yield f"    row {row:<8,} {place}"
            if len(each.rows) > SHOWN:
                yield f"    and {len(each.rows) - SHOWN:,} more; --json lists all"

    @property
    def exit_code(self) -> int:
        """0 intact, 4 waiting, 5 damaged."""
        return EXIT_CODES[self.state]

    def as_json(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "path": self.path,
            "kind": self.kind,
            "state": self.state,
            "frames": self.total,
            "unwritten": [[rows.start, rows.stop] for rows in self.unwritten],
            "sealed": self.sealed,
            "fingerprint": self.fingerprint,
            "damage": [each.as_json() for each in self.damage],
        }


def _said(found: Finding) -> str:
    if found.state == "damaged":
        rows = {row for each in found.damage for row in each.rows}
        said = f"{len(rows):,} of {found.total:,} frames damaged" if rows else "damaged"
    elif found.state == "intact":
        return f"{found.total:,} frames, fingerprint {found.fingerprint}"
    else:
        said = f"{found.total - sum(map(len, found.unwritten)):,} of {found.total:,} frames intact"
    if found.unwritten:
        listed = [f"{rows.start}-{rows.stop - 1}" for rows in found.unwritten[:SHOWN]]
        more = len(found.unwritten) - len(listed)
        said += f"; unwritten rows {', '.join(listed)}{f' and {more:,} more ranges' * bool(more)}"
    elif not found.sealed:
        said += "; not yet checked and sealed, rerun its evaluate command"
    return said


def _count(each: Damage) -> str:
    return f" ({len(each.rows):,} frame{'s' * (len(each.rows) > 1)})" if each.rows else ""

"""Which stages of a registration have begun, and whether a change still comes in time."""

from pathlib import Path
from typing import Any

from arflow_eval import refusal
from arflow_eval.registration.chain import Registration
from arflow_eval.registration.classes import STAGES, latest_stage
from arflow_eval.registration.folders import stores

Changes = list[dict[str, Any]]


def begun(registration: Registration, *, outputs: Path) -> dict[str, str]:
    """The stages that have begun, and what shows it: lines of the ledger, or stores."""
    found: dict[str, str] = {}
    for stage, kind in (("sweep", "begun"), ("read", "opened")):
        entry = registration.first(kind)
        if entry is not None:
            found[stage] = f"line {entry['number']} of the ledger, {entry['utc']}"
    made = [it for it in stores(outputs) if it.stamp.get("lock") == registration.start]
    if made and "sweep" not in found:
        found["sweep"] = f"the store in {made[0].path.parent.name}"
    return found


def check_stage(
    registration: Registration, changes: Changes, *, before: str | None, outputs: Path
) -> None:
    """Refuse an amendment that comes too late for its stage, or a deviation that need be none."""
    evidence = begun(registration, outputs=outputs)
    if before is None:
        if not evidence:
            raise refusal.usage(
                "a deviation, and nothing has begun",
                expected="an amendment, while there is time for one",
                remedy="give --before instead of --deviation",
            )
        return
    if before not in STAGES:
        raise refusal.usage(
            f"--before {before}",
            expected=f"one of {', '.join(STAGES)}",
            remedy="give --before read",
        )
    for change in changes:
        latest = latest_stage(change["key"])
        if change["class"] != "cosmetic" and STAGES.index(before) > STAGES.index(latest):
            raise refusal.guard(
                f"{change['key']} acts before the {before}",
                expected=f"an amendment before the {latest}",
                remedy=f"give --before {latest}, or --deviation where it has begun",
            )
    late = [stage for stage in STAGES[STAGES.index(before) :] if stage in evidence]
    if late:
        raise refusal.guard(
            f"the {late[0]} has begun ({evidence[late[0]]})",
            expected=f"an amendment before the {before}",
            remedy="give --deviation, which every later report shows first",
        )

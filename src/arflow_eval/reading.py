"""The flow of a read: stores, guards, panel order, measures, report.

A read's measure is a function whose positional parameters are the arms it needs, by role, and
whose keyword parameters are its settings; one that takes `**banked` takes further arms of any
role. It sees arms in panel order that passed the guards.
A measure with a `window` scores predictions; the module of one without states its own
`CLAIM_BOUNDARY`. The module's `table` lays a report out for the screen.
"""

import functools
import hashlib
import inspect
import json
import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

import xarray

from arflow_eval import refusal
from arflow_eval.reads import expectations, guards, registered
from arflow_eval.reads.made import made_arm
from arflow_eval.reads.oracles import Fired
from arflow_eval.reads.pairing import Arms, cut_to_subset, in_panel_order, longest_window
from arflow_eval.reads.settings import checked
from arflow_eval.values import choice, text

Measure = Callable[..., dict[str, Any]]
# keys of a read that are no settings of its measure
DESCRIPTION: Final = ("_target_", "name", "question")
ANALYSIS: Final[Mapping[str, Any]] = {
    "guards": {},
    "anchors": {},
    "expectations": {},
    "decision": [],
    "subset": False,
    "oracles": {},
}
GIVEN: Final = {"anchors", "subset_mode"}  # settings that the analysis itself supplies
STATUS: Final = "exploratory"
STATUS_REASON: Final = "no registration fixed this read before its data existed"
CLAIM_BOUNDARY: Final = (
    "open-loop error on recorded frames; it says nothing certain about success rates"
)


def run_oracles(
    definition: Mapping[str, Any],
    *,
    measure: Measure,
    given: Path | str | xarray.Dataset | None = None,
) -> list[Fired]:
    """Plant the effects that a read's oracles state, and see which branch each fires.

    On a made arm, or on a given greedy one: then factors follow from its own errors.
    """
    module = inspect.getmodule(measure)
    planted = getattr(module, "oracles", None)
    if planted is None:
        return []
    base = None if given is None else _opened("greedy", given).load()
    if base is None:  # a made arm is no registered panel
        definition = {**definition, "guards": registered.unpinned(definition.get("guards", {}))}

    def carry(arms: Arms, **changed: Any) -> dict[str, Any]:
        return _carry({**definition, **changed}, arms, measure=measure)

    found: list[Fired] = planted(definition, carry, given=base)
    return found


def run_read(
    definition: Mapping[str, Any],
    arms: Mapping[str, Path | str | xarray.Dataset],
    *,
    measure: Measure,
    standing: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Carry out a read and return its report as JSON values.

    The report has the measure's findings, `expectations` and `decision` where the read states
    them, and all that we add to a published schema under `extended`. It holds nothing volatile:
    the same stores, what a measure reads beside them, definition and code give the same bytes.

    Args:
        definition: `name`, `question` and the measure's settings; `window`, where the measure
            has one, may be None, which is the arms' common horizon. Also the analysis, where it
            has one: `guards` (name -> settings), `anchors` (name -> value and source),
            `expectations` and `decision` (see `reads.expectations`), and whether a strict
            `subset` of frames in one arm is joined, or the roles that are cut to one.
        arms: run folders, stores or opened datasets, by role.
        measure: the function that turns arms and settings into findings.
        standing: of a registered read, its `status`, the `status_reason` and the `registration`.

    Raises:
        Refusal: a role or setting is missing or unknown (usage), a store cannot be opened, or a
            guard fails. There is no report then.
    """
    _demand_oracles(json.dumps(definition, sort_keys=True), measure)
    report = _carry(definition, arms, measure=measure)
    report["extended"] |= standing or {}
    return report


def rehearse(definition: Mapping[str, Any], roles: Collection[str], *, measure: Measure) -> None:
    """Refuse a read that could not be carried out, before there are stores to read.

    Its names, settings, guards and expectations are checked and its oracles run; expectations
    without oracles are answered on a made arm in every role, so that every path leads somewhere.
    """
    analysis = {key: definition.get(key, default) for key, default in ANALYSIS.items()}
    expectations.check(analysis)
    registered.chosen(analysis["guards"])
    _checked_settings(definition, roles, measure=measure)
    _demand_oracles(json.dumps(definition, sort_keys=True), measure)
    if analysis["expectations"] and not analysis["oracles"]:
        arms = dict.fromkeys(roles, made_arm(chunk_mae=1.0))
        bare = {**definition, "guards": {}, "subset": False, "window": None}
        _carry(bare, arms, measure=measure)


@functools.cache
def _demand_oracles(definition: str, measure: Measure) -> None:
    """Refuse to read real arms where an oracle fails. Once a process: code does not change."""
    read: Mapping[str, Any] = json.loads(definition)
    if not read.get("oracles"):
        return
    failed = [each.name for each in run_oracles(read, measure=measure) if not each.passed]
    if failed:
        raise refusal.guard(
            f"the oracle {failed[0]} of {read['name']} does not come out as planted",
            expected="every oracle on made arms to pass before real arms are read",
            remedy=f"run read={read['name']} oracle=true, and mend the read or its oracle",
        )


def _carry(
    definition: Mapping[str, Any],
    arms: Mapping[str, Path | str | xarray.Dataset],
    *,
    measure: Measure,
) -> dict[str, Any]:
    """Guards, measure, expectations and decision of one read."""
    analysis = {key: definition.get(key, default) for key, default in ANALYSIS.items()}
    expectations.check(analysis)
    own = registered.chosen(analysis["guards"])
    roles, wanted = _roles(measure, given=arms), _settings(measure)
    settings = _checked_settings(definition, arms, measure=measure)
    stores = {role: _opened(role, arms[role]) for role in roles}
    opened, cut = _joined(stores, subset=analysis["subset"])
    passed = _guarded(guards.BEFORE_PAIRING, opened, settings)
    paired = in_panel_order(opened)
    passed += _guarded(guards.AFTER_PAIRING, paired, settings)
    for name, guard in own.items():
        guard(stores if name in registered.OF_STORES else paired)
        passed.append(name)
    if "window" in settings and settings["window"] is None:
        settings["window"] = longest_window(paired)
    anchors = {name: anchor["value"] for name, anchor in analysis["anchors"].items()}
    given = {"anchors": anchors, "subset_mode": cut}
    found = measure(**paired, **settings, **{key: given[key] for key in wanted & GIVEN})
    extended = found.pop("extended", {})
    return {
        **found,
        **_concluded(analysis, {**found, "anchors": anchors, "extended": extended}),
        "extended": {
            "read": definition["name"],
            "question": definition["question"],
            "status": STATUS,
            "status_reason": STATUS_REASON,
            "definition": {
                "measure": f"{measure.__module__}.{measure.__qualname__}",
                **settings,
                **{key: value for key, value in analysis.items() if value},
            },
            "arms": {role: _described(paired[role], source=arms[role]) for role in roles},
            "guards_passed": passed,
            "claim_boundary": getattr(inspect.getmodule(measure), "CLAIM_BOUNDARY", CLAIM_BOUNDARY),
            **extended,
        },
    }


def _checked_settings(
    definition: Mapping[str, Any], given: Collection[str], *, measure: Measure
) -> dict[str, Any]:
    """The settings of a read's measure, which takes these and these arms."""
    settings = {
        key: value for key, value in definition.items() if key not in {*DESCRIPTION, *ANALYSIS}
    }
    _check_names("arm", given=given, wanted=_roles(measure, given=given))
    _check_names("setting of the read", given=settings, wanted=_settings(measure) - GIVEN)
    return checked(settings)


def _concluded(analysis: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Expectations with their comparisons answered, and the decision they lead to."""
    if not analysis["expectations"]:
        return {}
    outcome = expectations.expected(analysis["expectations"], found)
    known = {**found, "expectations": outcome}
    falsified = any(entry.get("falsified") is True for entry in outcome.values())
    assembly = expectations.decided(analysis["decision"], known)
    return {
        "expectations": outcome,
        "decision": {"falsified": falsified, "assembly": assembly},
    }


def write_report(report: Mapping[str, Any], *, root: Path) -> Path:
    """Write `root/<read>-<digest>/report.json` in one step and return its path.

    The digest is over the definition, the arms' fingerprints and what else the findings say they
    were `read_from`, so the same read of the same stores goes to the same file.

    Raises:
        Refusal: an arm has no fingerprint (guard): its store is not finished.
    """
    folder = root / f"{report['extended']['read']}-{report_digest(report)[:8]}"
    text = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".report-", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def report_digest(report: Mapping[str, Any]) -> str:
    """SHA-256 (hex) over a report's name, definition, its arms' fingerprints and `read_from`.

    `extended.read_from` is what a measure read beside the stores, by role, as digests.
    """
    about = report["extended"]
    fingerprints = {role: arm["fingerprint"] for role, arm in about["arms"].items()}
    unfinished = [role for role, fingerprint in fingerprints.items() if not fingerprint]
    if unfinished:
        raise refusal.guard(
            f"the {' and '.join(unfinished)} arm has no fingerprint",
            expected="finished stores behind a written report",
            remedy="rerun the same evaluate command, it resumes",
        )
    identity = [about["read"], about["definition"], fingerprints]
    if "registration" in about:
        identity.append(about["registration"])
    if "read_from" in about:
        identity.append(about["read_from"])
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _joined(stores: Arms, *, subset: bool | Collection[str]) -> tuple[dict[str, Any], bool]:
    """The arms on the frames that they are read on, and whether any was cut to them."""
    if not subset:
        return dict(stores), False
    if isinstance(subset, bool):
        return cut_to_subset(stores)
    for role in subset:
        choice(role, key="read.subset", known=tuple(stores))
    return cut_to_subset(stores, only=subset)


def _roles(measure: Measure, *, given: Collection[str]) -> list[str]:
    """The arms that a measure names, and those given beside them where it takes any."""
    parameters = inspect.signature(measure).parameters.values()
    named = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    if not any(each.kind is each.VAR_KEYWORD for each in parameters):
        return named
    settings = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    return [*named, *(role for role in given if role not in {*named, *settings})]


def _settings(measure: Measure) -> set[str]:
    parameters = inspect.signature(measure).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}


def _check_names(kind: str, *, given: Collection[str], wanted: Collection[str]) -> None:
    for name in given:
        if name not in wanted:
            close = refusal.nearest(name, wanted)
            raise refusal.usage(
                f"no {kind} is called {name}",
                expected=", ".join(wanted) or "none",
                remedy=f"did you mean {close}?" if close else f"leave {name} out",
            )
    for name in wanted:
        if name not in given:
            raise refusal.usage(
                f"the {kind} {name} is missing", expected=", ".join(wanted), remedy=f"set {name}"
            )


def _opened(role: str, source: Path | str | xarray.Dataset) -> xarray.Dataset:
    if isinstance(source, xarray.Dataset):
        return source
    from arflow_eval.store import open_run  # noqa: PLC0415 - datasets in memory need no zarr

    return open_run(text(str(source), key=f"arms.{role}"))


def _guarded(known: tuple[guards.Guard, ...], arms: Arms, settings: Mapping[str, Any]) -> list[str]:
    """The names of the guards that these arms needed and passed."""
    chosen = guards.needed(known, arms=len(arms), scored="window" in settings)
    for guard in chosen:
        guard(arms, settings.get("window"))
    return [guard.__name__ for guard in chosen]


def _described(arm: xarray.Dataset, *, source: Path | str | xarray.Dataset) -> dict[str, Any]:
    described = {key: arm.attrs.get(key) for key in ("arm", "fingerprint", "digest")}
    if isinstance(source, xarray.Dataset):
        return described
    path = Path(source).resolve()
    here = Path.cwd()
    inside = path.is_relative_to(here)
    return {**described, "path": str(path.relative_to(here)) if inside else path.name}

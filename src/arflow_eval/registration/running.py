"""The run of a locked arm: its configuration as locked, and what the ledger says of it."""

from collections.abc import Mapping
from typing import Any, Final

from arflow_eval import evaluation, provenance, refusal
from arflow_eval.contracts import Panel
from arflow_eval.registration import chain, ledger
from arflow_eval.registration.chain import Registration
from arflow_eval.registration.classes import key_class
from arflow_eval.registration.documents import flat, impersonal, places, replaced
from arflow_eval.registration.folders import experiment
from arflow_eval.registration.plan import LATER
from arflow_eval.settings import EvaluateSettings
from arflow_eval.values import choice, shown

OWN: Final = ("experiment", "experiments.root", "arm", "exploratory")


def locked_arm(config: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of `experiment=NAME arm=ARM`: as locked, with what may be overridden.

    Adds `registration`, the stamp that the arm's store carries.

    Raises:
        Refusal: there is no such locked arm, or a given key would change what is estimated and
            `exploratory` is not set.
    """
    registration = _registration(config)
    arms = registration.document["arms"]
    if config["arm"] is None:
        raise refusal.usage(
            f"experiment={registration.name} without an arm",
            expected=f"arm= one of {', '.join(arms)}",
            remedy=f"give arm={next(iter(arms))}, or --multirun arm={','.join(arms)}",
        )
    arm = choice(config["arm"], key="arm", known=tuple(arms))
    if "imported" in arms[arm]:
        raise refusal.usage(
            f"arm {arm} is imported ({arms[arm]['imported']})",
            expected="an arm that evaluate makes",
            remedy="write its store with arflow-eval convert",
        )
    locked = flat(arms[arm])
    changed = {key: value for key, value in given.items() if _differs(key, value, locked)}
    exploratory = config["exploratory"] is True
    if not exploratory:
        _check_overrides(registration, arm, changed, locked=locked)
    known = {".".join(place) for place in places(config)}
    kept = {key: it for key, it in locked.items() if key in known and key not in changed}
    stamp = {
        "experiment": registration.name,
        "arm": arm,
        "lock": registration.start,
        "amendments": registration.chain,
        "exploratory": exploratory,
        "opens_sealed": not exploratory,
        "overridden": {key: impersonal(key, value) for key, value in changed.items()},
    }
    return {**replaced(config, kept), "registration": stamp}


def _registration(config: Mapping[str, Any]) -> Registration:
    return chain.load(experiment(config["experiment"], root=config["experiments"]["root"]))


def _differs(key: str, value: Any, locked: Mapping[str, Any]) -> bool:
    return key not in OWN and (key not in locked or locked[key] != impersonal(key, value))


def _check_overrides(
    registration: Registration, arm: str, changed: Mapping[str, Any], *, locked: Mapping[str, Any]
) -> None:
    for key, value in changed.items():
        if key_class(f"arms.{arm}.{key}", registration.document) == "estimand":
            was = f"{key}={shown(locked[key])}" if key in locked else f"no {key}"
            raise refusal.guard(
                f"{key}={shown(value)} would change what {registration.name} estimates",
                expected=f"arm {arm} as it was locked, with {was}",
                remedy=f"drop {key}, amend the registration, or give exploratory=true",
            )


def begin(config: Mapping[str, Any], settings: EvaluateSettings, panel: Panel) -> None:
    """Hold a locked arm against its registration, bind its checkpoint, record that it begins.

    Raises a guard refusal that names what differs: code, panel, checkpoint or configuration.
    """
    stamp = settings.registration
    if stamp is None:
        _check_alone(config)
        return
    registration = _registration(config)
    found = evaluation.identity(settings, panel)
    what = {"arm": stamp["arm"], "store": provenance.digest(found)}
    if stamp["exploratory"]:
        _record(registration, "explored", what)
        return
    expected = expected_identity(registration, stamp["arm"])
    if expected["model"]["checkpoint"] == LATER:
        expected["model"]["checkpoint"] = _bound(registration, stamp["arm"], found)
    differing = differences(expected, found)
    if differing:
        raise refusal.guard(
            f"arm {stamp['arm']} would differ from what was locked in {'; '.join(differing)}",
            expected="the registered configuration, code, panel and checkpoint",
            remedy="check out what was locked, or amend the registration",
        )
    _record(registration, "begun", what)


def _check_alone(config: Mapping[str, Any]) -> None:
    lone = [key for key in ("arm", "exploratory") if config.get(key) not in (None, False)]
    if lone:
        raise refusal.usage(
            f"{lone[0]}={shown(config[lone[0]])} without an experiment",
            expected="the registration that it belongs to",
            remedy=f"add experiment=NAME, or drop {lone[0]}",
        )


def finish(config: Mapping[str, Any], fingerprint: str | None) -> None:
    """Record that a locked arm's store is whole. Refuses one that came out otherwise before."""
    stamp = config.get("registration")
    if stamp is None or stamp["exploratory"] or fingerprint is None:
        return
    registration = _registration(config)
    begun = [it for it in registration.entries if it["kind"] == "begun"]
    store = next(it for it in reversed(begun) if it["what"]["arm"] == stamp["arm"])["what"]["store"]
    what = {"arm": stamp["arm"], "store": store, "fingerprint": fingerprint}
    first = ledger.record(
        registration.folder,
        start=registration.start,
        kind="finished",
        what=what,
        same=lambda entry: entry["what"]["store"] == store and entry["what"]["arm"] == stamp["arm"],
    )
    if first["what"] != what:
        raise refusal.guard(
            f"arm {stamp['arm']} came out with fingerprint {fingerprint[:12]}…",
            expected=f"{first['what']['fingerprint'][:12]}…, which the ledger has of its first run",
            remedy="restore the first store; another machine may differ in the last bits",
        )


def shows_outcomes(config: Mapping[str, Any]) -> bool:
    """Whether a run may print its errors: a locked arm's stay closed until its reads."""
    stamp = config.get("registration")
    return stamp is None or bool(stamp["exploratory"])


def standing(config: Mapping[str, Any]) -> list[str]:
    """What a run of a registration says of itself, as lines for the screen."""
    stamp = config.get("registration")
    if stamp is None:
        return []
    where = f"{stamp['experiment']}, arm {stamp['arm']}, lock {stamp['lock'][:12]}"
    lines = [f"registration {where}, amendments: {len(stamp['amendments'])}"]
    if stamp["overridden"]:
        said = ", ".join(f"{key}={shown(value)}" for key, value in stamp["overridden"].items())
        lines.append(f"overridden   {said}")
    if stamp["exploratory"]:
        lines.append("exploratory: this store is none of the registration's")
    else:
        reading = f"arflow-eval read experiment={stamp['experiment']}"
        lines.append(f"outcomes stay closed until {reading}")
    return lines


def expected_identity(registration: Registration, arm: str) -> dict[str, Any]:
    """What names the store of an arm, with the checkpoint that the ledger binds to it."""
    stated = registration.document["stores"][arm]
    if stated.get("model", {}).get("checkpoint") != LATER:
        return dict(stated)
    entry = registration.first("bound", arm=arm)
    checkpoint = LATER if entry is None else entry["what"]["checkpoint"]
    return {**stated, "model": {**stated["model"], "checkpoint": checkpoint}}


def _bound(registration: Registration, arm: str, found: Mapping[str, Any]) -> str:
    """The checkpoint that an arm is bound to from now on, once: the first that it was run with."""
    checkpoint = found["model"]["checkpoint"]
    if checkpoint is None:
        raise refusal.usage(
            f"arm {arm} has no checkpoint yet",
            expected="model.path",
            remedy="add model.path=FOLDER",
        )
    entry = ledger.record(
        registration.folder,
        start=registration.start,
        kind="bound",
        what={"arm": arm, "checkpoint": checkpoint},
        same=lambda entry: entry["what"]["arm"] == arm,
    )
    return str(entry["what"]["checkpoint"])


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The keys in which two identities differ, with what was expected and what was found."""
    before, after = flat(expected), flat(found)
    return [
        f"{key} ({_short(before.get(key))} -> {_short(after.get(key))})"
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    ]


def _short(value: Any) -> str:
    text = shown(value)
    return f"{text[:12]}…" if len(text) > 24 else text


def _record(registration: Registration, kind: str, what: Mapping[str, Any]) -> None:
    ledger.record(registration.folder, start=registration.start, kind=kind, what=what)

"""Amendments: a config diff with a reason, made before the stage that it can affect."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from arflow_eval import compose, keys, provenance, reading, refusal
from arflow_eval.registration import chain, composing, documents, ledger
from arflow_eval.registration.chain import AMENDMENT_FORMAT, AMENDMENT_KEY, AMENDMENTS, Registration
from arflow_eval.registration.classes import key_class
from arflow_eval.registration.lock import write_once
from arflow_eval.registration.stages import Changes, check_stage

NOW: Final = "now"  # of a code digest: that of the code which is installed
GIVEN_OF_STORES: Final = ("code", "model.checkpoint", "fingerprint")


def amend(
    folder: Path,
    overrides: Sequence[str],
    *,
    reason: str,
    before: str | None,
    outputs: Path,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Write an amendment of a locked registration, and return it.

    Args:
        folder: the registration's.
        overrides: `key=value` over the registered document, such as `arms.draws.seed=1`.
        reason: why, in words.
        before: the stage that it precedes; None makes it a deviation, which every report shows.
        outputs: where stores lie, as evidence of a stage that has begun.
        dry_run: only show it.

    Raises:
        Refusal: a key is unknown, nothing changes (usage), or the stage has begun (guard).
    """
    if not reason.strip():
        raise refusal.usage("no reason", expected="why it is amended", remedy='add --reason "…"')
    registration = chain.load(folder)
    changes = proposed(registration, overrides)
    check_stage(registration, changes, before=before, outputs=outputs)
    number = len(registration.amendments) + 1
    amendment = documents.sealed(
        {
            "format": AMENDMENT_FORMAT,
            "number": number,
            "previous": registration.head,
            "before": before,
            "deviation": before is None,
            "reason": " ".join(reason.split()),
            "changes": changes,
            "made": {
                "utc": documents.now(),
                "commit": composing.tree(folder, file=chain.LOCK)["commit"],
            },
        },
        key=AMENDMENT_KEY,
    )
    if not dry_run:
        _write(registration, amendment, before=before, outputs=outputs)
    return amendment


def _write(
    registration: Registration, amendment: Mapping[str, Any], *, before: str | None, outputs: Path
) -> None:
    """Write the file and its line in the ledger, unless something happened meanwhile."""
    folder, start = registration.folder, registration.start
    with ledger.held(folder, start=start) as (file, entries):
        if len(entries) != len(registration.entries):
            now = chain.load(folder)
            if now.head != registration.head:
                raise refusal.guard(
                    f"amendment {len(now.amendments)} was made meanwhile",
                    expected="the registration as it stood when this one was drawn up",
                    remedy="read the other amendment, then run the command again",
                )
            check_stage(now, amendment["changes"], before=before, outputs=outputs)
        words = re.findall(r"[a-z0-9]+", amendment["reason"].lower())[:6]
        name = f"{amendment['number']:04d}-{'-'.join(words) or 'amendment'}.yaml"
        text = yaml.safe_dump(dict(amendment), sort_keys=False, allow_unicode=True, width=100)
        write_once(folder / AMENDMENTS / name, text)
        what = {
            "number": amendment["number"],
            "amendment": amendment[AMENDMENT_KEY],
            "deviation": before is None,
        }
        ledger.append(file, entries, start=start, kind="amended", what=what)


def proposed(registration: Registration, overrides: Sequence[str]) -> Changes:
    """The changes that overrides make, and those of stores and code that follow from them."""
    before = documents.flat(registration.document)
    given = dict(_parsed(override, before) for override in overrides)
    for key, value in given.items():
        keys.check_type(key, value, like=before[key])
    if given.get("code.reading") == NOW:
        code = composing.reading_code()
        given |= {"code.reading": code["reading"], "code.modules": code["modules"]}
    after = documents.replaced(registration.document, given)
    for arm in _touched(given):
        after["stores"][arm] = _identity(registration, after, arm, given=given)
    _check_reads(after, given)
    found = documents.flat(after)
    changes: Changes = [
        {
            "key": key,
            "old": before.get(key),
            "new": value,
            "class": key_class(key, registration.document),
            **({} if key in given else {"follows": True}),
        }
        for key, value in found.items()
        if before.get(key) != value
    ]
    if not changes:
        raise refusal.usage(
            f"{' '.join(overrides) or 'no override'} changes nothing",
            expected="a value other than the registered one",
            remedy=f"see arflow-eval prereg show {registration.name}",
        )
    return changes


def _parsed(override: str, known: Mapping[str, Any]) -> tuple[str, Any]:
    """The key and value of an override of the registered document."""
    key, equals, text = override.partition("=")
    if not equals:
        raise refusal.usage(
            f"{override!r} sets no key", expected="key=value", remedy="write key=value"
        )
    if key not in known:
        raise keys.unknown_key(key, known)
    place = key.split(".")
    follows = (place[0] == "stores" and ".".join(place[2:]) not in GIVEN_OF_STORES) or (
        key == "code.modules"
    )
    code = key == "code.reading" or (place[0] == "stores" and place[2:] == ["code"])
    if follows or (code and text != NOW):
        raise refusal.usage(
            f"{override} states what follows from the arms and the code",
            expected=f"{key}={NOW}" if code else "a key of arms, reads or gates",
            remedy=f"write {key}={NOW}" if code else "change the arm that the store is of",
        )
    try:
        return key, yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise refusal.usage(
            f"cannot read the value of {override!r}",
            expected="a number, text, true, false, null or [a, b]",
            remedy="check brackets and quotes",
        ) from error


def _touched(given: Mapping[str, Any]) -> list[str]:
    """The arms whose stores may change with some keys."""
    return sorted({key.split(".")[1] for key in given if key.startswith(("arms.", "stores."))})


def _identity(
    registration: Registration, after: Mapping[str, Any], arm: str, *, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What names an arm's store after a change."""
    stated = after["stores"][arm]
    if "fingerprint" in stated:
        return dict(stated)
    moved = any(key.startswith(f"arms.{arm}.panel.") for key in given)
    found = composing.identity(
        after["arms"][arm],
        checkpoint=stated["model"]["checkpoint"] or "",
        panel=None if moved else stated["panel"],
    )
    found["model"]["checkpoint"] = stated["model"]["checkpoint"]
    locked = registration.document["stores"][arm]["code"]
    if found["code"] != locked and stated["code"] != NOW:
        raise refusal.guard(
            f"the code of arm {arm} is not the registered one",
            expected=f"code {locked[:12]}…, or an amendment that says so",
            remedy=f"check out the registered code, or add stores.{arm}.code={NOW}",
        )
    return found


def _check_reads(after: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse a read that could not be carried out any more."""
    for name in sorted({key.split(".")[1] for key in given if key.startswith("reads.")}):
        definition, roles = (after["reads"][name][key] for key in ("read", "arms"))
        for arm in roles.values():
            if arm not in after["arms"]:
                raise keys.unknown_key(f"arms.{arm}", [f"arms.{it}" for it in after["arms"]])
        measure = compose.call_target(definition["_target_"])
        reading.rehearse(definition, roles, measure=measure)


def shown(amendment: Mapping[str, Any]) -> list[str]:
    """An amendment as lines for the screen: old -> new of every key, with its class."""
    when = f"before the {amendment['before']}" if amendment["before"] else "DEVIATION"
    lines = [f"amendment {amendment['number']}, {when}: {amendment['reason']}"]
    for change in amendment["changes"]:
        follows = ", follows" if change.get("follows") else ""
        lines.append(
            f"  {change['key']}: {brief(change['old'])} -> {brief(change['new'])}"
            f"  ({change['class']}{follows})"
        )
    return lines


def brief(value: Any) -> str:
    """A value in few words: digests and long lists cut short."""
    text = provenance.canonical(value).decode()
    if re.fullmatch(r'"[0-9a-f]{64}"', text):
        return text[1:13] + "…"
    return text if len(text) <= 60 else text[:57] + "…"

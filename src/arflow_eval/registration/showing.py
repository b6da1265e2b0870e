"""A registration as a page to read: Markdown, or HTML of the same."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from arflow_eval.registration import amending, chain, composing
from arflow_eval.registration.documents import flat
from arflow_eval.registration.plan import read_plan

Kind = Literal["title", "heading", "words", "items", "table"]
STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;display:block;overflow-x:auto}"
    "td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left;vertical-align:top}"
)


@dataclass(frozen=True)
class Block:
    """A part of a page. `rows` of a table begin with its headings."""

    kind: Kind
    text: str = ""
    rows: Sequence[Sequence[str]] = ()


def page(folder: Path) -> list[Block]:
    """A registration's page: as locked and amended, or as planned where it is not locked yet."""
    if not (folder / chain.LOCK).exists():
        plan = read_plan(folder)
        document, questions = composing.composed(plan)
        return [
            *_head(plan.name, document, standing="Not locked: nothing is fixed yet."),
            *(
                [
                    Block("heading", "Open questions"),
                    Block("items", rows=[[it] for it in questions]),
                ]
                if questions
                else []
            ),
            *_body(document),
        ]
    registration = chain.load(folder)
    made = registration.lock["made"]
    dirty = f" The lock was made although {made['dirty'][0]}." if made["dirty"] else ""
    standing = (
        f"Locked {made['utc']} at commit {made['commit'] or 'none'},"
        f" SHA-256 {registration.start}.{dirty}"
    )
    return [
        *_head(registration.name, registration.document, standing=standing),
        *_body(registration.document),
        *_amendments(registration.amendments),
        *_history(registration.entries),
    ]


def _head(name: str, document: Mapping[str, Any], *, standing: str) -> list[Block]:
    words = [document["question"], standing, document.get("background", "")]
    return [Block("title", name), *(Block("words", " ".join(it.split())) for it in words if it)]


def _body(document: Mapping[str, Any]) -> Iterator[Block]:
    """Arms, reads with what is expected of them, gates and notes."""
    yield Block("heading", "Arms")
    rows = [["arm", "model", "decode", "panel", "seed"]]
    rows += [[name, *_arm(arm)] for name, arm in document["arms"].items()]
    yield Block("table", rows=rows)
    yield Block("heading", "Reads")
    for name, entry in document["reads"].items():
        read = entry["read"]
        roles = ", ".join(f"{role} = {arm}" for role, arm in entry["arms"].items())
        only = " Record-only." if entry["record_only"] else ""
        note = f" {entry['note']}" if entry.get("note") else ""
        yield Block("words", f"{name}: {read['question']} ({read['name']}; {roles}).{only}{note}")
        yield from _expectations(read)
    if document.get("gates"):
        yield Block("heading", "Gates")
        rows = [["gate", "value"]]
        rows += [[key, str(value)] for key, value in flat(document["gates"]).items()]
        yield Block("table", rows=rows)
    if document.get("published_amendments"):
        yield Block("heading", "Amendments that were published")
        yield Block("items", rows=[[_published(it)] for it in document["published_amendments"]])
    if document.get("notes"):
        yield Block("heading", "Notes")
        yield Block("items", rows=[[str(note)] for note in document["notes"]])


def _published(amendment: Mapping[str, Any]) -> str:
    changes = "; ".join(amendment["changes"])
    return f"before the {amendment['before']}: {amendment['reason']} ({changes})"


def _arm(arm: Mapping[str, Any]) -> list[str]:
    if "imported" in arm:
        return [f"imported: {arm['imported']}", "", "", ""]
    decode = arm["decode"]
    settings = [
        f"{key}={decode[key]}" for key in ("draws", "T", "steps") if decode[key] is not None
    ]
    return [
        str(arm["model"]["name"]),
        f"{decode['name']} ({', '.join(settings)})",
        str(arm["panel"]["name"]),
        str(arm["seed"]),
    ]


def _expectations(read: Mapping[str, Any]) -> Iterator[Block]:
    stated = read.get("expectations", {})
    if stated:
        yield Block("items", rows=[[f"{name}: {_stated(it)}"] for name, it in stated.items()])
    for number, group in enumerate(read.get("decision", []), start=1):
        said = [[f"decision {number}: {case['say']}"] for case in group]
        yield Block("items", rows=said)


def _stated(entries: Mapping[str, Any]) -> str:
    said = []
    for key, entry in entries.items():
        if not isinstance(entry, Mapping):
            said.append(str(entry))
        elif "interval" in entry:
            said.append(f"{key} if {entry['interval']} excludes {entry['excludes']}")
        else:
            size = "size of " if entry.get("size") else ""
            said.append(f"{key} if {size}{entry['value']} is {entry['is']} {entry['than']}")
    return "; ".join(said)


def _amendments(amendments: Sequence[chain.Amendment]) -> Iterator[Block]:
    yield Block("heading", "Amendments")
    if not amendments:
        yield Block("words", "None.")
    for amendment in amendments:
        first, *rest = amending.shown(amendment)
        yield Block("words", first)
        yield Block("items", rows=[[line.strip()] for line in rest])


def _history(entries: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    yield Block("heading", "What happened")
    rows = [["UTC", "what", "of"]]
    for entry in entries:
        what = {key: value for key, value in entry["what"].items() if key != "leaves"}
        said = ", ".join(f"{key} {_short(value)}" for key, value in what.items())
        rows.append([entry["utc"], entry["kind"], said])
    yield Block("table", rows=rows)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_short(inner)}" for key, inner in value.items())
    return f"{value[:12]}…" if isinstance(value, str) and len(value) == 64 else str(value)


def markdown(blocks: Sequence[Block]) -> str:
    """A page as Markdown."""
    parts = []
    for block in blocks:
        if block.kind == "table":
            cells = [[cell.replace("|", "\\|") for cell in row] for row in block.rows]
            head, *rest = [f"| {' | '.join(row)} |" for row in cells]
            parts.append("\n".join([head, "|" + "---|" * len(cells[0]), *rest]))
        elif block.kind == "items":
            parts.append("\n".join(f"- {row[0]}" for row in block.rows))
        else:
            mark = {"title": "# ", "heading": "## ", "words": ""}[block.kind]
            parts.append(mark + block.text)
    return "\n\n".join(parts) + "\n"


def as_html(blocks: Sequence[Block]) -> str:
    """A page as one HTML file that needs no other."""
    parts = [_html(block) for block in blocks]
    name = html.escape(blocks[0].text)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{name}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n{chr(10).join(parts)}\n</html>\n"
    )


def _html(block: Block) -> str:
    if block.kind == "items":
        return f"<ul>{''.join(f'<li>{html.escape(row[0])}</li>' for row in block.rows)}</ul>"
    if block.kind == "table":
        lines = []
        for number, row in enumerate(block.rows):
            cell = "td" if number else "th"
            inner = "".join(f"<{cell}>{html.escape(it)}</{cell}>" for it in row)
            lines.append(f"<tr>{inner}</tr>")
        return f"<table>{''.join(lines)}</table>"
    tag = {"title": "h1", "heading": "h2", "words": "p"}[block.kind]
    return f"<{tag}>{html.escape(block.text)}</{tag}>"

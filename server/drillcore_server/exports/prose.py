"""Turns the items of a walk and the audit records into blocks for people. No value of the JSON copy is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from drillcore_server.exports.blocks import Block, Facts, Heading, Manifestation, Prose, Quote, Table, Verbatim
from drillcore_server.exports.content import SIGNATURES
from drillcore_server.exports.walk import Item, Part
from drillcore_server.hierarchy.signable import Content
from drillcore_server.kernel.canonical_json import canonical

NONE: Final = "none"
_CITATIONS: Final = ("Document", "Chunk", "Characters", "Weight")
_CITATION_SHARES: Final = (34, 34, 16, 16)
_AUDIT_COLUMNS: Final = ("No.", "Time", "Operator", "Action", "Outcome", "Record")
_AUDIT_SHARES: Final = (6, 15, 13, 10, 9, 47)
_IN_COLUMNS: Final = ("at", "operator", "action", "outcome")
"""Fields of a record's body that have a column of their own."""
_BESIDE_THE_BODY: Final = {"private": "private_part", "erased": "private_part_erased", "of": "explains"}
"""Fields of a record's line outside the body, and the names they are shown under."""
_MANIFESTATION_FIELDS: Final = ("signer_name", "signed_at", "meaning")


class BlockMaker:
    """Makes the blocks for the items of one walk, in order."""

    def __init__(self) -> None:
        self._begun: set[Part] = set()

    def blocks_of(self, item: Item) -> Iterator[Block]:
        if item.part not in self._begun:
            self._begun.add(item.part)
            yield Heading(_PARTS[item.part], 1)
        if item.part is Part.NODE:
            parent = [] if item.parent is None else [("parent", str(item.parent))]
            yield from _LEVELS[item.content["level"]](item.content, parent)
        else:
            yield from _RECORDS[item.part](item.content)
        yield from map(manifestation, item.content.get(SIGNATURES, ()))

    def rest(self) -> Iterator[Block]:
        """Headings for parts without items. They show that nothing was left out."""
        for part in Part:
            if part not in self._begun:
                yield Heading(_PARTS[part], 1)
                yield Facts([(_PARTS[part], NONE)])


def manifestation(signature: Content) -> Manifestation:
    rows = list(flat({name: value for name, value in signature.items() if name not in _MANIFESTATION_FIELDS}))
    return Manifestation(signature["signer_name"], signature["signed_at"], signature["meaning"], rows)


def audit_heading(line: Mapping[str, Any]) -> Iterator[Block]:
    """The blocks for the first line of the audit trail."""
    yield Heading("Audit trail", 1)
    yield Facts(list(flat({name: value for name, value in line.items() if name not in {"keys", "checkpoint"}})))
    yield Prose("Checkpoint", str(line.get("checkpoint", "")))
    yield Table("Records", _AUDIT_COLUMNS, _AUDIT_SHARES, ())


def audit_record(line: Mapping[str, Any]) -> Table:
    body = dict(line.get("body", {}))
    shown = [str(line["index"]), *(text_of(body.pop(name, "")) for name in _IN_COLUMNS)]
    beside = {shown: line[name] for name, shown in _BESIDE_THE_BODY.items() if name in line}
    further = "; ".join(f"{name}: {value}" for name, value in flat(body | beside))
    return Table("", _AUDIT_COLUMNS, _AUDIT_SHARES, [[*shown, further]], continued=True)


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every value, with the path of names that leads to it."""
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            yield from flat(inner, f"{prefix}{name}.")
        elif isinstance(inner, list) and any(isinstance(element, Mapping) for element in inner):
            yield from flat({str(place): element for place, element in enumerate(inner, 1)}, f"{prefix}{name}.")
        else:
            yield prefix + name, text_of(inner)


def text_of(value: Any) -> str:
    """The value as text in one line."""
    if value is None or value in ("", [], {}):
        return NONE
    if isinstance(value, list):
        return ", ".join(map(text_of, value))
    return value if isinstance(value, str) else canonical(value).decode()


def _corpus(corpus: Content) -> Iterator[Block]:
    yield Facts(list(flat(corpus)))


def _document(document: Content) -> Iterator[Block]:
    yield Heading(document["title"] or document["source_id"], 2, in_contents=False)
    yield Facts(list(flat(document)))


def _fact(fact: Content) -> Iterator[Block]:
    yield Heading(f"Fact {fact['id']}", 2, in_contents=False)
    yield Facts(list(flat({name: value for name, value in fact.items() if name not in {"content", SIGNATURES}})))
    yield Verbatim(fact["content"])


def _revision(record: Content) -> Iterator[Block]:
    yield Heading(f"Revision {record['revision']}", 2, in_contents=False)
    yield Facts(list(flat(record)))


def _master(node: Content, parent: list[tuple[str, str]]) -> Iterator[Block]:
    yield Heading("Master", 2)
    yield _facts(node, ("summary", "citations", "findings"), parent)
    yield Prose("Summary", node["summary"])
    yield from _citations(node["citations"])
    for finding in node["findings"]:
        cited = finding["citation"]
        note = f"{finding['kind']}; {'; '.join(_cited(cited))}"
        yield Quote(finding["text"], note)


def _section(node: Content, parent: list[tuple[str, str]]) -> Iterator[Block]:
    yield Heading(node["title"] or node["id"], 2)
    yield _facts(node, ("summary", "citations", "entities"), parent)
    yield Prose("Summary", node["summary"])
    yield from _citations(node["citations"])
    yield from _entities(node["entities"])


def _chunk(node: Content, parent: list[tuple[str, str]]) -> Iterator[Block]:
    yield Heading(f"Chunk {node['id']}", 3, in_contents=False)
    yield _facts(node, ("summary", "quotes", "entities"), parent)
    yield Prose("Summary", node["summary"])
    for quote in node["quotes"]:
        yield Quote(quote["text"], f"characters {_span(quote['span'])}; weight {text_of(quote['weight'])}")
    yield from _entities(node["entities"])


def _raw(node: Content, parent: list[tuple[str, str]]) -> Iterator[Block]:
    yield Heading(f"Raw {node['id']}", 4, in_contents=False)
    yield _facts(node, ("content",), parent)
    yield Verbatim(node["content"])


def _facts(node: Content, shown_below: Sequence[str], parent: list[tuple[str, str]]) -> Facts:
    rest = {name: value for name, value in node.items() if name not in {*shown_below, SIGNATURES, "span"}}
    span = [("characters", _span(node["span"]))] if "span" in node else []
    return Facts([*parent, *span, *flat(rest)])


def _citations(citations: Iterable[Content]) -> Iterator[Block]:
    rows = list(map(_cited, citations))
    if rows:
        yield Table("Citations", _CITATIONS, _CITATION_SHARES, rows)


def _cited(citation: Content) -> list[str]:
    return [citation["document_id"], citation["chunk_id"], _span(citation["span"]), text_of(citation["weight"])]


def _entities(entities: Iterable[Content]) -> Iterator[Block]:
    rows = [(entity["type"], entity["value"]) for entity in entities]
    if rows:
        yield Table("Entities", ("Type", "Value"), (25, 75), rows)


def _span(span: Content) -> str:
    return f"{span['start']} to {span['end']}"


_PARTS: Final = {
    Part.CORPUS: "Corpus",
    Part.DOCUMENT: "Documents",
    Part.FACT: "Facts",
    Part.REVISION: "Revisions",
    Part.NODE: "Knowledge",
}
_RECORDS: Final[Mapping[Part, Callable[[Content], Iterator[Block]]]] = {
    Part.CORPUS: _corpus,
    Part.DOCUMENT: _document,
    Part.FACT: _fact,
    Part.REVISION: _revision,
}
_LEVELS: Final[Mapping[str, Callable[[Content, list[tuple[str, str]]], Iterator[Block]]]] = {
    "master": _master,
    "section": _section,
    "chunk": _chunk,
    "raw": _raw,
}

"""Blocks of copies for people: each item is shown in full in its own blocks, and no content can imitate structure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from markdown_it import MarkdownIt

from drillcore_server.exports.blocks import Block, Facts, Heading, Manifestation, Prose, Quote, Table, Verbatim
from drillcore_server.exports.markdown_copy import MarkdownCopy
from drillcore_server.exports.prose import BlockMaker, audit_record
from tests.exports.test_equal_content import markdown_text, squeezed, texts_in
from tests.support.data.exported_corpora import Desk

HOSTILE = [
    "# heading",
    "Title\n=====",
    "- item\n+ item\n* item\n1. item\n2) item",
    "> quoted\n\n> Signed electronically by Mallory",
    "```\nfence\n~~~",
    "    code by indent\n\ttab",
    "<b>bold</b> <!-- comment --> <script>x</script>",
    "*emphasis* __strong__ `code` ~~struck~~",
    "[link](http://x) ![image](y) <http://z> [ref]: http://w",
    "| cell | cell |\n| --- | --- |\n| a | b |",
    "&amp; &#35; &copy;",
    "trailing backslash \\\nnext line  \nlast",
    "---\n***\n___",
    "\n\nfirst line empty",
    '<a id="part-1"></a>',
]


def said_in(value: Any) -> Iterator[str]:
    """Every text in a block."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for child in value:
            yield from said_in(child)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from said_in(getattr(value, field.name))


def test_each_item_is_shown_in_full_by_its_own_blocks(desk: Desk) -> None:
    maker = BlockMaker()
    for item in desk.walk().items():
        told = "\n".join(text for block in maker.blocks_of(item) for text in said_in(block))
        assert [text for text in texts_in(item.content) if text not in told] == []
        assert item.parent is None or str(item.parent) in told


def test_an_audit_record_is_shown_in_full_by_its_own_row() -> None:
    body = {
        "id": "r1", "at": "2026-01-01T00:00:00Z", "operator": "ann", "action": "ACCESS", "outcome": "OK",
        "nodes": ["n1", "n2"], "detail": {"count": 3, "deep": {"er": "yes"}}, "private": {"commitment": "c0", "key": 7},
    }  # fmt: skip
    line = {"index": 4, "leaf": "x", "body": body, "private": {"query": "what?"}, "of": "erasure"}
    (row,) = audit_record(line).rows
    assert row[:5] == ["4", "2026-01-01T00:00:00Z", "ann", "ACCESS", "OK"]
    assert [text for text in texts_in([body, "what?", "erasure"]) if text not in " ".join(row)] == []


def blocks_of(text: str) -> list[Block]:
    """A block of each kind, made from a text of another author."""
    return [
        Heading(text, 2),
        Facts([(text, text)]),
        Prose("Summary", text),
        Verbatim(text),
        Quote(text, text),
        Table("Entities", ("Type", "Value"), (1, 1), [(text, text)]),
        Manifestation(text, text, text, [("id", text)]),
    ]


def structure(source: str) -> list[str]:
    """The structure of a document without its texts. Lines of a text may become paragraphs."""
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    inner = [child.type for token in tokens for child in token.children or ()]
    plain = {"text", "text_special", "softbreak", "hardbreak", "strong_open", "strong_close"}
    paragraphs = {"paragraph_open", "paragraph_close", "inline"}
    return [token.type for token in tokens if token.type not in paragraphs] + [
        kind for kind in inner if kind not in plain
    ]


def copied(blocks: list[Block]) -> str:
    written: list[bytes] = []
    copy = MarkdownCopy(written.append)
    for block in blocks:
        copy.take(block)
    return b"".join([copy.front("Title", Facts([])), *written]).decode()


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_changes_the_structure_of_a_document(text: str) -> None:
    assert structure(copied(blocks_of(text))) == structure(copied(blocks_of("harmless")))


@pytest.mark.parametrize("text", HOSTILE)
def test_every_text_is_read_back_unchanged(text: str) -> None:
    said = squeezed(markdown_text(copied(blocks_of(text))))
    times = squeezed(markdown_text(copied(blocks_of("harmless")))).count("harmless")
    assert said.count(squeezed(text)) >= times

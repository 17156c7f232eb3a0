"""HTML: the visible text with its structure, without scripts, parsed in bounded time."""

from __future__ import annotations

import time

import pytest

from drillcore_server.documents.model import BlockKind, ParsedDocument
from drillcore_server.documents.parsers import ParseLimits, Unparsable, UnparsableReason, parse

H, P, L, T, C = BlockKind.HEADING, BlockKind.PARAGRAPH, BlockKind.LIST_ITEM, BlockKind.TABLE, BlockKind.CODE


def outcome(html: str | bytes, limits: ParseLimits | None = None) -> ParsedDocument | Unparsable:
    content = html.encode() if isinstance(html, str) else html
    (found,) = parse(content, name="page.html", limits=limits or ParseLimits())
    return found


def blocks(html: str) -> list[tuple[BlockKind, int, str]]:
    document = outcome(html)
    assert isinstance(document, ParsedDocument)
    return [(block.kind, block.level, block.span.of(document.text)) for block in document.blocks]


def test_headings_paragraphs_lists_tables_and_code() -> None:
    html = """<html><body><h2>Scope</h2><p>Some <b>bold</b>text<br>and
      more.<ul><li>one<li><p>two</p></ul><table><tr><th>a<th>b<tr><td>1<td>2</table><pre>x
  y</pre>loose</body>"""
    assert blocks(html) == [
        (H, 2, "Scope"),
        (P, 0, "Some boldtext\nand more."),
        (L, 0, "one"),
        (L, 0, "two"),
        (T, 0, "a | b\n1 | 2"),
        (C, 0, "x\n  y"),
        (P, 0, "loose"),
    ]


def test_scripts_styles_and_the_head_are_left_out() -> None:
    html = (
        "<html><head><title>T</title><style>s</style></head><body><script>alert(1)</script><p>Words</p></body></html>"
    )
    assert blocks(html) == [(P, 0, "Words")]


def test_the_title_is_that_of_the_page() -> None:
    document = outcome("<!doctype html><title> The\nRules </title><h1>Other</h1>")
    assert isinstance(document, ParsedDocument)
    assert document.title == "The Rules"
    assert document.preprocessing[0] == "decoded as utf-8"
    assert document.preprocessing[1].startswith("html to text with selectolax ")


def test_a_table_used_for_layout_is_no_table() -> None:
    html = "<body><table><tr><td><h1>Title</h1><p>Words</p></td><td><table><tr><td>a<td>b</table></td></tr></table>"
    assert blocks(html) == [(H, 1, "Title"), (P, 0, "Words"), (T, 0, "a | b")]


def test_the_encoding_named_in_the_page_is_used() -> None:
    document = outcome("<html><head><meta charset=windows-1251></head><p>Приказ</p>".encode("windows-1251"))
    assert isinstance(document, ParsedDocument)
    assert document.text == "Приказ"


@pytest.mark.parametrize("nest", ["<div>", "<ul><li>", "<b>", "<table><tr><td>", "<div><p>", "<svg>"])
def test_deep_nesting_is_refused_before_it_costs_time(nest: str) -> None:
    started = time.process_time()
    refused = outcome("<html>" + nest * 200_000 + "x")
    assert isinstance(refused, Unparsable)
    assert refused.reason is UnparsableReason.TOO_DEEP
    assert time.process_time() - started < 2


@pytest.mark.parametrize("open_", ["<p>x", "<li>x", "<!--", "<br>", "<", "<script>"])
def test_many_elements_that_are_never_closed_are_read_in_time(open_: str) -> None:
    started = time.process_time()
    outcome("<html><p>words</p>" + open_ * 50_000)
    assert time.process_time() - started < 5


def test_a_page_without_text_is_empty() -> None:
    refused = outcome("<html><body><script>1</script></body></html>")
    assert isinstance(refused, Unparsable)
    assert refused.reason is UnparsableReason.EMPTY


def test_the_limit_of_text_counts_the_extracted_text() -> None:
    html = "<html>" + "<p>words</p>" * 50
    assert isinstance(outcome(html, ParseLimits(text_chars_max=400)), ParsedDocument)
    refused = outcome(html, ParseLimits(text_chars_max=300))
    assert isinstance(refused, Unparsable)
    assert refused.reason is UnparsableReason.TOO_LARGE

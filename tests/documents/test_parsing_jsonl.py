"""JSON lines: good lines are read, bad lines are refused with their number."""

from __future__ import annotations

import json

from drillcore_server.documents.model import BlockKind, ParsedDocument
from drillcore_server.documents.parsers import ParseLimits, Unparsable, UnparsableReason, parse


def outcomes(*lines: str | bytes, limits: ParseLimits | None = None) -> list[ParsedDocument | Unparsable]:
    content = b"\n".join(line.encode() if isinstance(line, str) else line for line in lines)
    return list(parse(content, name="x.jsonl", limits=limits or ParseLimits()))


def test_a_line_is_a_document_with_its_id_title_and_metadata() -> None:
    line = {
        "id": "a-1",
        "title": "Scope",
        "text": "# One\n\nTwo.",
        "metadata": {"part": "11", "year": 1997},
        "url": "u",
    }
    (document,) = outcomes(json.dumps(line))
    assert isinstance(document, ParsedDocument)
    assert (document.external_id, document.title, document.text) == ("a-1", "Scope", "# One\n\nTwo.")
    assert document.metadata == {"part": "11", "year": "1997", "url": "u"}
    assert document.blocks[0].kind is BlockKind.HEADING


def test_bad_lines_are_refused_by_number_and_the_good_ones_read() -> None:
    found = outcomes(
        '{"text": "One."}', "{broken", "", "[1]", '{"title": "no text"}', '{"text": " "}', '{"text": "Two."}'
    )
    good = [document.text for document in found if isinstance(document, ParsedDocument)]
    bad = [(refusal.line, refusal.reason) for refusal in found if isinstance(refusal, Unparsable)]
    assert good == ["One.", "Two."]
    assert bad == [
        (2, UnparsableReason.MALFORMED),
        (4, UnparsableReason.MALFORMED),
        (5, UnparsableReason.MALFORMED),
        (6, UnparsableReason.EMPTY),
    ]


def test_an_id_used_twice_is_refused_the_second_time() -> None:
    first, second, third = outcomes('{"id": 1, "text": "a"}', '{"id": "1", "text": "b"}', '{"id": "2", "text": "c"}')
    assert isinstance(first, ParsedDocument)
    assert isinstance(second, Unparsable)
    assert second.reason is UnparsableReason.DUPLICATE_ID
    assert isinstance(third, ParsedDocument)


def test_a_lone_surrogate_is_replaced_and_recorded() -> None:
    (document,) = outcomes(r'{"text": "a \ud800 b \ud83d\ude00"}')
    assert isinstance(document, ParsedDocument)
    assert document.text == "a � b 😀"
    assert "replaced 1 lone surrogates by U+FFFD" in document.preprocessing


def test_deep_metadata_is_refused() -> None:
    deep = '{"text": "a", "metadata": {"x": ' + "[" * 300 + "]" * 300 + "}}"
    (outcome,) = outcomes(deep)
    assert isinstance(outcome, Unparsable)
    assert outcome.reason is UnparsableReason.TOO_DEEP
    (deeper,) = outcomes('{"text": "\\ud800", "metadata": ' + "[" * 100_000)
    assert isinstance(deeper, Unparsable)


def test_a_line_may_hold_html_but_no_pdf() -> None:
    html, pdf = outcomes(
        '{"text": "<p>Words</p>", "media_type": "text/html"}', '{"text": "x", "media_type": "application/pdf"}'
    )
    assert isinstance(html, ParsedDocument)
    assert html.text == "Words"
    assert isinstance(pdf, Unparsable)
    assert pdf.reason is UnparsableReason.UNSUPPORTED


def test_json_lines_are_recognized_by_their_content() -> None:
    found = list(parse(b'{"text": "One."}\n{"text": "Two."}\n', name="export.txt"))
    assert len(found) == 2


def test_windows_line_ends_and_line_separators_inside_strings_do_not_split() -> None:
    (document,) = outcomes('{"text": "a\u2028b"}\r')
    assert isinstance(document, ParsedDocument)
    assert document.text == "a\u2028b"

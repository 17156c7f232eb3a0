"""Text formats keep every character, encodings are recognized by their bytes, and damage is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.documents.model import BlockKind, ParsedDocument
from drillcore_server.documents.parsers import ParseLimits, Unparsable, UnparsableReason, parse
from drillcore_server.documents.parsers.text_blocks import heading_level

H, P, L, T, C = BlockKind.HEADING, BlockKind.PARAGRAPH, BlockKind.LIST_ITEM, BlockKind.TABLE, BlockKind.CODE


def parsed(content: bytes | str, name: str = "x.txt", media_type: str | None = None) -> ParsedDocument:
    (document,) = parse(content.encode() if isinstance(content, str) else content, name=name, media_type=media_type)
    assert isinstance(document, ParsedDocument), document
    return document


def refused(content: bytes, name: str = "x.txt", limits: ParseLimits | None = None) -> Unparsable:
    (outcome,) = parse(content, name=name, limits=limits or ParseLimits())
    assert isinstance(outcome, Unparsable)
    return outcome


def blocks(document: ParsedDocument) -> list[tuple[BlockKind, int, str]]:
    return [(block.kind, block.level, block.span.of(document.text)) for block in document.blocks]


def assert_blocks_leave_out_only_white_space(document: ParsedDocument) -> None:
    at = 0
    for block in document.blocks:
        assert block.span.start >= at
        assert not document.text[at : block.span.start].strip()
        assert block.span.of(document.text).strip() == block.span.of(document.text) != ""
        at = block.span.end
    assert not document.text[at:].strip()


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\r\t"), min_size=1).filter(str.strip)
)
def test_text_is_exactly_the_decoded_characters(text: str) -> None:
    for name in ("x.txt", "x.md"):
        outcomes = list(parse(text.encode(), name=name))
        if len(outcomes) == 1 and isinstance(outcomes[0], ParsedDocument) and outcomes[0].media_type != "text/html":
            document = outcomes[0]
            # A byte order mark says how to read the bytes. It is no character of the text.
            assert document.text == text.removeprefix("\ufeff")
            assert_blocks_leave_out_only_white_space(document)


@given(
    st.lists(st.sampled_from(["# a\n", "b\n", "===\n", "```\n", "\n", "- c\r\n", "|d|\n", "|-|\n", "  x ", "1. y\n"]))
)
def test_markdown_blocks_leave_out_only_white_space(parts: list[str]) -> None:
    text = "z" + "".join(parts)
    assert_blocks_leave_out_only_white_space(parsed(text, "x.md"))


def test_line_ends_are_kept() -> None:
    assert parsed(b"One.\r\n\r\nTwo.\rThree.\n").text == "One.\r\n\r\nTwo.\rThree.\n"


@pytest.mark.parametrize(
    ("content", "text", "note"),
    [
        ("Grüße".encode(), "Grüße", "decoded as utf-8"),
        ("Grüße".encode("utf-8-sig"), "Grüße", "decoded as utf-8, byte order mark removed"),
        ("Grüße".encode("utf-16"), "Grüße", "decoded as utf-16-le, byte order mark removed"),
        ("Plain words".encode("utf-16-be"), "Plain words", "decoded as utf-16-be"),
        ("Grüße".encode("latin-1"), "Grüße", "decoded as windows-1252, because it is not valid utf-8"),
    ],
)
def test_the_encoding_is_found_and_recorded(content: bytes, text: str, note: str) -> None:
    document = parsed(content)
    assert document.text == text
    assert document.preprocessing == (note,)


def test_a_declared_encoding_is_used_when_the_bytes_are_not_utf8() -> None:
    document = parsed("Приказ".encode("windows-1251"), media_type="text/plain; charset=windows-1251")
    assert document.text == "Приказ"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", UnparsableReason.EMPTY),
        (b" \r\n\t\n", UnparsableReason.EMPTY),
        ("Grüße und ".encode() + b"\xe2\x82 mehr", UnparsableReason.BROKEN_ENCODING),
        (b"\xff\xfea\x00b", UnparsableReason.BROKEN_ENCODING),
        (bytes(range(256)) * 8, UnparsableReason.NOT_TEXT),
        (b"\x00\x01\x02\x03" * 100, UnparsableReason.NOT_TEXT),
        (b"\x89PNG\r\n\x1a\n", UnparsableReason.UNSUPPORTED),
        (b"{\\rtf1 words}", UnparsableReason.UNSUPPORTED),
        (b"<?xml version='1.0'?><root>words</root>", UnparsableReason.UNSUPPORTED),
    ],
)
def test_content_that_is_no_text_is_refused_with_the_reason(content: bytes, reason: UnparsableReason) -> None:
    outcome = refused(content)
    assert outcome.reason is reason
    assert outcome.name == "x.txt"


def test_a_few_control_characters_are_kept_and_recorded() -> None:
    document = parsed("Page one with a lot of ordinary words\x00 and a bell\x07.")
    assert "\x00" in document.text
    assert "kept 2 control characters" in document.preprocessing


def test_content_over_a_limit_is_refused() -> None:
    assert refused(b"words " * 10, limits=ParseLimits(input_bytes_max=20)).reason is UnparsableReason.TOO_LARGE
    assert refused(b"words " * 10, limits=ParseLimits(text_chars_max=20)).reason is UnparsableReason.TOO_LARGE


def test_headings_lists_and_tables_of_plain_text() -> None:
    text = "PART 11 - RECORDS\n\n§ 11.1 Scope.\n\n(a) First.\n(b) Second\ngoes on.\n\nA paragraph.\n\na\tb\nc\td\n"
    assert blocks(parsed(text)) == [
        (H, 1, "PART 11 - RECORDS"),
        (H, 4, "§ 11.1 Scope."),
        (L, 0, "(a) First."),
        (L, 0, "(b) Second\ngoes on."),
        (P, 0, "A paragraph."),
        (T, 0, "a\tb\nc\td"),
    ]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("CHAPTER II", 2),
        ("Subpart B—Electronic Records", 3),
        ("Article 17", 4),
        ("§ 11.10 Controls for closed systems.", 4),
        ("1. Introduction", 3),
        ("1.2 Scope", 4),
        ("GENERAL PROVISIONS", 2),
        ("Article 17 of the Regulation gives the data subject a right, which the controller shall honour.", 0),
        ("21 U.S.C. 321-393; 42 U.S.C. 262.", 0),
        ("1. Introduction ............ 4", 0),
        ("The controller shall:", 0),
        ("A paragraph of text.", 0),
        ("3 apples", 0),
    ],
)
def test_these_lines_are_headings(line: str, level: int) -> None:
    assert heading_level(line) == level


def test_a_wrapped_sentence_that_begins_like_a_heading_is_a_paragraph() -> None:
    assert blocks(parsed("Article 17 applies to processors\nwho keep records."))[0][0] is P


def test_blocks_of_markdown() -> None:
    text = "# Law #\n\nScope\n-----\nSome text.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    text += "```\n# no heading\n\n```\nEnd"
    document = parsed(text, "x.md")
    assert blocks(document) == [
        (H, 1, "# Law #"),
        (H, 2, "Scope\n-----"),
        (P, 0, "Some text."),
        (L, 0, "- one"),
        (L, 0, "- two"),
        (T, 0, "| a | b |\n|---|---|\n| 1 | 2 |"),
        (C, 0, "```\n# no heading\n\n```"),
        (P, 0, "End"),
    ]
    assert document.title == "Law"


def test_markdown_is_recognized_by_its_content() -> None:
    assert parsed("Intro\n\n## Scope\n\nText.", "x.txt").media_type == "text/markdown"
    assert parsed("Just words.", "x.txt").media_type == "text/plain"


def test_a_document_without_a_heading_is_named_after_its_file() -> None:
    assert parsed("Just words.", "folder/annual report.txt").title == "annual report"


def test_one_line_of_many_megabytes_is_one_paragraph() -> None:
    assert len(parsed("word " * 1_000_000).blocks) == 1

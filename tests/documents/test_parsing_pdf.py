"""PDF: pages, paragraphs and headings. No damage in a file ends the process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drillcore_server.documents.model import BlockKind, ParsedDocument
from drillcore_server.documents.parsers import ParseLimits, Unparsable, UnparsableReason, parse

TextLine = tuple[int, int, str]
"""Font size, distance from the bottom of the page, words."""


def pdf(pages: Sequence[Sequence[TextLine]], *, title: str = "", trailer: str = "") -> bytes:
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, page in enumerate(pages):
        lines = "".join(f"BT /F1 {size} Tf 50 {bottom} Td ({words}) Tj ET\n" for size, bottom, words in page)
        resources = "/Resources << /Font << /F1 3 0 R >> >> /MediaBox [0 0 600 800]"
        objects.append(f"<< /Type /Page /Parent 2 0 R {resources} /Contents {5 + 2 * index} 0 R >>")
        objects.append(f"<< /Length {len(lines)} >>\nstream\n{lines}\nendstream")
    objects.append(f"<< /Title ({title}) >>")
    return _with_table(objects, trailer)


def _with_table(objects: Sequence[str], trailer: str) -> bytes:
    content = b"%PDF-1.4\n"
    offsets = []
    for number, pdf_object in enumerate(objects, start=1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{pdf_object}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    return content + (
        f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n"
        f"<< /Size {size} /Root 1 0 R /Info {size - 1} 0 R {trailer} >>\n"
        f"startxref\n{len(content)}\n%%EOF"
    ).encode("latin-1")


def outcome(content: bytes, limits: ParseLimits | None = None) -> ParsedDocument | Unparsable:
    (found,) = parse(content, name="x.pdf", limits=limits or ParseLimits())
    return found


def blocks(content: bytes) -> list[tuple[BlockKind, int | None, str]]:
    document = outcome(content)
    assert isinstance(document, ParsedDocument), document
    return [(block.kind, block.page, block.span.of(document.text)) for block in document.blocks]


BODY = [(11, 700 - 14 * row, f"line {row} of a paragraph that goes on") for row in range(4)]


def test_lines_become_paragraphs_with_their_page() -> None:
    second = [(11, 760, "Records shall be"), (11, 746, "kept."), (11, 715, "They shall be signed.")]
    found = blocks(pdf([[(20, 760, "Electronic Records"), *BODY], second]))
    assert found == [
        (BlockKind.HEADING, 1, "Electronic Records"),
        (BlockKind.PARAGRAPH, 1, " ".join(words for _, _, words in BODY)),
        (BlockKind.PARAGRAPH, 2, "Records shall be kept."),
        (BlockKind.PARAGRAPH, 2, "They shall be signed."),
    ]


def test_a_numbered_line_is_a_heading() -> None:
    assert blocks(pdf([[(11, 760, "1.2 Scope of the rules"), *BODY]]))[0] == (
        BlockKind.HEADING,
        1,
        "1.2 Scope of the rules",
    )


def test_running_heads_and_page_numbers_are_left_out() -> None:
    rows = [
        [
            (9, 780, "Annual Report"),
            *((11, 700 - 30 * row, f"page {page} row {row} x") for row in range(8)),
            (9, 20, f"{page}"),
        ]
        for page in range(1, 7)
    ]
    document = outcome(pdf(rows))
    assert isinstance(document, ParsedDocument)
    assert "Annual Report" not in document.text
    assert "page 3 row 4 x" in document.text
    assert any("running" in note for note in document.preprocessing)


@pytest.mark.parametrize(("stated", "title"), [("Rules", "Rules"), ("Microsoft Word - a.doc", "x"), ("", "x")])
def test_the_title_is_the_stated_one_unless_a_program_wrote_it(stated: str, title: str) -> None:
    document = outcome(pdf([BODY], title=stated))
    assert isinstance(document, ParsedDocument)
    assert document.title == title


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"%PDF-1.7\nnothing of the kind", UnparsableReason.MALFORMED),
        (pdf([BODY])[:200], UnparsableReason.MALFORMED),
        (pdf([[]]), UnparsableReason.EMPTY),
    ],
)
def test_an_unreadable_pdf_is_refused(content: bytes, reason: UnparsableReason) -> None:
    refused = outcome(content)
    assert isinstance(refused, Unparsable)
    assert refused.reason is reason


def test_a_pdf_with_a_password_is_encrypted() -> None:
    key = "0" * 64
    locked = pdf(
        [BODY], trailer=f"/Encrypt << /Filter /Standard /V 1 /R 2 /O <{key}> /U <{key}> /P -4 >> /ID [<00> <00>]"
    )
    refused = outcome(locked)
    assert isinstance(refused, Unparsable)
    assert refused.reason is UnparsableReason.ENCRYPTED


def test_too_many_pages_are_refused() -> None:
    refused = outcome(pdf([BODY] * 3), ParseLimits(pages_max=2))
    assert isinstance(refused, Unparsable)
    assert refused.reason is UnparsableReason.TOO_LARGE


def test_a_document_that_takes_too_long_is_given_up() -> None:
    refused = outcome(pdf([BODY]), ParseLimits(seconds_max=-1.0))
    assert isinstance(refused, Unparsable)
    assert refused.reason is UnparsableReason.TOO_SLOW


def test_damaged_bytes_never_raise() -> None:
    whole = pdf([BODY, BODY])
    for at in range(0, len(whole), 5):
        outcome(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])

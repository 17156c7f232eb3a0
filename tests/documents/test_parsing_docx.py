"""DOCX: headings, lists and tables as mammoth reads them; a zip bomb is refused before it is unpacked."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import pytest

from drillcore_server.documents.model import BlockKind, ParsedDocument
from drillcore_server.documents.parsers import ParseLimits, Unparsable, UnparsableReason, parse

NAMESPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
RELATIONSHIPS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>'
)
TYPES = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
STYLES = (
    f'<w:styles {NAMESPACE}><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style>'
    "</w:styles>"
)


def paragraph(text: str, style: str | None = None) -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def table(*rows: tuple[str, ...]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def docx(body: str, extra: Mapping[str, str | bytes] | None = None, prolog: str = "") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", TYPES)
        archive.writestr("_rels/.rels", RELATIONSHIPS)
        archive.writestr("word/styles.xml", STYLES)
        archive.writestr("word/document.xml", f"{prolog}<w:document {NAMESPACE}><w:body>{body}</w:body></w:document>")
        for name, content in (extra or {}).items():
            archive.writestr(name, content)
    return packed.getvalue()


def outcome(content: bytes, limits: ParseLimits | None = None) -> ParsedDocument | Unparsable:
    (found,) = parse(content, name="x.docx", limits=limits or ParseLimits())
    return found


def reason(content: bytes, limits: ParseLimits | None = None) -> UnparsableReason:
    found = outcome(content, limits)
    assert isinstance(found, Unparsable)
    return found.reason


def test_headings_paragraphs_and_tables() -> None:
    document = outcome(docx(paragraph("Scope", "Heading1") + paragraph("Words.") + table(("a", "b"), ("1", "2"))))
    assert isinstance(document, ParsedDocument)
    found = [(block.kind, block.level, block.span.of(document.text)) for block in document.blocks]
    assert found == [
        (BlockKind.HEADING, 1, "Scope"),
        (BlockKind.PARAGRAPH, 0, "Words."),
        (BlockKind.TABLE, 0, "a | b\n1 | 2"),
    ]
    assert document.title == "Scope"
    assert document.media_type.endswith("wordprocessingml.document")
    assert document.preprocessing[0].startswith("docx to html with mammoth ")


def test_the_title_is_that_of_the_properties() -> None:
    core = "<cp:coreProperties><dc:title>Rules &amp; Records</dc:title></cp:coreProperties>"
    document = outcome(docx(paragraph("Scope", "Heading1"), {"docProps/core.xml": core}))
    assert isinstance(document, ParsedDocument)
    assert document.title == "Rules & Records"


def test_a_docx_is_recognized_whatever_its_name() -> None:
    (document,) = parse(docx(paragraph("Words.")), name="x.txt", media_type="text/plain")
    assert isinstance(document, ParsedDocument)
    assert document.text == "Words."


def test_a_zip_bomb_is_refused_before_unpacking(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = docx(paragraph("x"), {"word/media/image1.bin": bytes(50_000_000)})

    def unpacked(*_: object) -> None:
        raise AssertionError("unpacked")

    monkeypatch.setattr(zipfile.ZipFile, "open", unpacked)
    assert len(bomb) < 100_000
    assert reason(bomb) is UnparsableReason.TOO_LARGE


def test_a_part_that_is_larger_than_it_declares_is_refused() -> None:
    honest = docx(paragraph("x" * 4_000_000))
    size = len(f"<w:document {NAMESPACE}><w:body></w:body></w:document>" + paragraph("x" * 4_000_000))
    lying = honest.replace(size.to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    assert lying != honest
    assert reason(lying) is UnparsableReason.MALFORMED


@pytest.mark.parametrize(
    "limits",
    [
        ParseLimits(zip_entries_max=3),
        ParseLimits(zip_bytes_max=400),
        ParseLimits(xml_bytes_max=300),
        ParseLimits(xml_tags_max=5),
    ],
)
def test_each_limit_of_the_zip_holds(limits: ParseLimits) -> None:
    content = docx(paragraph("x" * 200))
    assert isinstance(outcome(content), ParsedDocument)
    assert reason(content, limits) is UnparsableReason.TOO_LARGE


def test_xml_entities_are_refused() -> None:
    prolog = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    assert reason(docx(paragraph("&b;"), prolog=prolog)) is UnparsableReason.MALFORMED


def test_deeply_nested_xml_is_refused() -> None:
    assert reason(docx("<w:sdt>" * 20_000 + "</w:sdt>" * 20_000)) is UnparsableReason.MALFORMED


@pytest.mark.parametrize("cut", [4, 100, 400])
def test_a_truncated_docx_is_malformed(cut: int) -> None:
    assert reason(docx(paragraph("Words."))[:-cut]) is UnparsableReason.MALFORMED


def test_damaged_bytes_never_raise() -> None:
    whole = docx(paragraph("Words " * 50) + table(("a", "b")))
    for at in range(0, len(whole), 7):
        outcome(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])


def test_another_zip_is_unsupported() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("notes.txt", "words")
    assert reason(packed.getvalue()) is UnparsableReason.UNSUPPORTED


def test_a_document_with_a_password_is_encrypted() -> None:
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512) + "EncryptedPackage".encode("utf-16-le")
    assert reason(ole) is UnparsableReason.ENCRYPTED

"""Reads PDF with pdfium, page by page. Joins lines into paragraphs, and recognises headings by their type."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib.metadata import version

import pypdfium2 as pdfium  # type: ignore[import-untyped]
import pypdfium2.raw as pdfium_raw  # type: ignore[import-untyped]

from drillcore_server.documents.model import BlockKind, Budget, ParsedDocument, Refusal, UnparsableReason, check_size
from drillcore_server.documents.parsers.detect import Format
from drillcore_server.documents.parsers.layout import PrintedLine, page_paragraphs, running_lines
from drillcore_server.documents.parsers.text_blocks import TextBuilder, refuse_blank, title

_BOLD_WEIGHT = 600
_NO_TITLES = ("untitled", "microsoft word", "powerpoint")
# Only one thread of a process may use pdfium at a time.
_PDFIUM = threading.Lock()


def parse_pdf(content: bytes, *, name: str, budget: Budget) -> ParsedDocument:
    """Raises `Refusal` if anything is wrong with the file."""
    with _PDFIUM:
        try:
            return _parse(content, name, budget)
        except pdfium.PdfiumError as error:
            raise _refusal(error) from error
        except (ValueError, OSError, RuntimeError, UnicodeError) as error:
            raise _malformed() from error


def _parse(content: bytes, name: str, budget: Budget) -> ParsedDocument:
    document = pdfium.PdfDocument(content)
    try:
        check_size(len(document), budget.limits.pages_max, "pages")
        pages = [list(_lines(document, index, budget)) for index in range(len(document))]
        stated = document.get_metadata_dict().get("Title")
    finally:
        document.close()
    return _assemble(pages, name, stated, budget)


def _assemble(pages: list[list[PrintedLine]], name: str, stated: str | None, budget: Budget) -> ParsedDocument:
    builder = TextBuilder(budget)
    running = running_lines(pages)
    for number, page in enumerate(pages, start=1):
        for paragraph in page_paragraphs(page, running):
            kind = BlockKind.HEADING if paragraph.level else BlockKind.PARAGRAPH
            builder.add(kind, paragraph.text, level=paragraph.level, page=number)
    text, blocks = builder.text(), builder.blocks()
    refuse_blank(blocks, "holds no text, perhaps scanned pages; recognise their text first (OCR)")
    return ParsedDocument(
        text=text,
        media_type=Format.PDF.value,
        title=title(text, blocks, name=name, stated=_sensible(stated)),
        blocks=blocks,
        preprocessing=_notes(len(running)),
    )


def _notes(running: int) -> tuple[str, ...]:
    left_out = (f"left out {running} running heads and feet",) if running else ()
    return (f"pdf to text with pypdfium2 {version('pypdfium2')}", "lines joined to paragraphs", *left_out)


def _lines(document: pdfium.PdfDocument, index: int, budget: Budget) -> Iterator[PrintedLine]:
    budget.check_time()
    page = document[index]
    text_page = page.get_textpage()
    try:
        text = text_page.get_text_range()
        # Offsets of characters and of boxes are the same, unless the text has characters beyond the basic plane.
        placed = len(text) == text_page.count_chars()
        at = 0
        for line in text.split("\r\n"):
            if line.strip():
                first = at + len(line) - len(line.lstrip())
                yield _line(text_page, first if placed else None, line)
            at += len(line) + 2
    finally:
        text_page.close()
        page.close()


def _line(text_page: pdfium.PdfTextPage, first: int | None, line: str) -> PrintedLine:
    if first is None:
        return PrintedLine(line.strip())
    _, bottom, _, top = text_page.get_charbox(first, loose=True)
    bold = pdfium_raw.FPDFText_GetFontWeight(text_page, first) >= _BOLD_WEIGHT
    return PrintedLine(line.strip(), bottom=bottom, size=top - bottom, bold=bold)


def _sensible(stated: str | None) -> str | None:
    """Returns the stated title, or None if it is one that a program wrote by itself."""
    stated = (stated or "").strip()
    automatic = stated.lower().startswith(_NO_TITLES) or stated.lower().endswith((".doc", ".docx", ".pdf", ".indd"))
    return None if automatic else stated


def _refusal(error: pdfium.PdfiumError) -> Refusal:
    if getattr(error, "err_code", None) in (pdfium_raw.FPDF_ERR_PASSWORD, pdfium_raw.FPDF_ERR_SECURITY):
        return Refusal(UnparsableReason.ENCRYPTED, "is protected by a password; save it without the password")
    return _malformed()


def _malformed() -> Refusal:
    return Refusal(UnparsableReason.MALFORMED, "is a PDF that cannot be read; print it to a new PDF")

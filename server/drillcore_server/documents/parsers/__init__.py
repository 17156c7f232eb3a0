"""Reads plain text, Markdown, HTML, PDF, DOCX and JSON lines into text with blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from drillcore_server.documents.model import Budget, ParsedDocument, ParseLimits, Refusal, Unparsable, UnparsableReason
from drillcore_server.documents.parsers.detect import (
    Format,
    declared_charset,
    decode,
    detect_binary,
    detect_markup,
    detect_text,
    hinted_format,
)
from drillcore_server.documents.parsers.docx import parse_docx
from drillcore_server.documents.parsers.html import parse_html
from drillcore_server.documents.parsers.jsonl import metadata, parse_json_lines
from drillcore_server.documents.parsers.pdf import parse_pdf
from drillcore_server.documents.parsers.plain_text import markdown_blocks, plain_text_blocks
from drillcore_server.documents.parsers.text_blocks import refuse_blank, storable, title

__all__ = ["ParseLimits", "Unparsable", "UnparsableReason", "parse"]

_DEFAULT_LIMITS = ParseLimits()


def parse(
    content: bytes, *, name: str, media_type: str | None = None, limits: ParseLimits = _DEFAULT_LIMITS
) -> Iterator[ParsedDocument | Unparsable]:
    """Yields the document in the content, or one document for each line of JSON lines.

    Yields an `Unparsable` in place of a document that cannot be read, and raises no error for any content. The name and
    the media type are hints; the content decides.
    """
    try:
        yield from _documents(content, name, media_type, limits)
    except Refusal as refusal:
        yield refusal.about(name)


def _documents(
    content: bytes, name: str, media_type: str | None, limits: ParseLimits
) -> Iterator[ParsedDocument | Unparsable]:
    budget = Budget.of(limits)
    budget.check_input(len(content))
    binary = detect_binary(content)
    if binary is Format.PDF:
        yield parse_pdf(content, name=name, budget=budget)
    elif binary is Format.DOCX:
        yield parse_docx(content, name=name, budget=budget)
    else:
        yield from _text_documents(content, name, media_type, budget)


def _text_documents(
    content: bytes, name: str, media_type: str | None, budget: Budget
) -> Iterator[ParsedDocument | Unparsable]:
    decoded = decode(content, declared=declared_charset(media_type, content))
    format_ = detect_text(decoded.text, name=name, media_type=media_type)
    if format_ is Format.JSON_LINES:
        yield from _json_lines(decoded.text, name, decoded.notes, budget.limits)
    else:
        yield _text_document(decoded.text, format_, name, decoded.notes, budget)


def _text_document(text: str, format_: Format, name: str, notes: tuple[str, ...], budget: Budget) -> ParsedDocument:
    if format_ is Format.HTML:
        return parse_html(text, name=name, notes=notes, budget=budget)
    budget.check_text(len(text))
    blocks = tuple(markdown_blocks(text) if format_ is Format.MARKDOWN else plain_text_blocks(text))
    refuse_blank(blocks, "is empty; leave it out")
    return ParsedDocument(
        text=text,
        media_type=format_.value,
        title=title(text, blocks, name=name),
        blocks=blocks,
        preprocessing=notes,
    )


def _json_lines(
    text: str, name: str, notes: tuple[str, ...], limits: ParseLimits
) -> Iterator[ParsedDocument | Unparsable]:
    def parse_line(
        line_text: str, line_name: str, fields: Mapping[str, Any], line_notes: tuple[str, ...]
    ) -> ParsedDocument:
        done = (*notes, "text of a JSON line", *line_notes)
        format_ = _line_format(line_text, fields.get("media_type"))
        document = _text_document(line_text, format_, line_name, done, Budget.of(limits))
        return _described(document, line_name, fields)

    return parse_json_lines(text, name=name, limits=limits, parse_line=parse_line)


def _line_format(text: str, media_type: str | None) -> Format:
    declared = hinted_format("", media_type)
    if declared is Format.HTML:
        return declared
    if media_type and declared not in (Format.TEXT, Format.MARKDOWN):
        raise Refusal(UnparsableReason.UNSUPPORTED, "has a media_type that a JSON line cannot hold; send a file")
    return detect_markup(text, declared)


def _described(document: ParsedDocument, name: str, fields: Mapping[str, Any]) -> ParsedDocument:
    identity = fields.get("id")
    return ParsedDocument(
        text=document.text,
        media_type=document.media_type,
        title=title(document.text, document.blocks, name=name, stated=fields.get("title")) or document.title,
        blocks=document.blocks,
        preprocessing=document.preprocessing,
        metadata=metadata(fields),
        external_id=None if identity is None else storable(str(identity))[0],
    )

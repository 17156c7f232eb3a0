"""Detects the format of a document by its content. Its name and declared type only decide where the content leaves it
open."""

from __future__ import annotations

import enum
import re
from pathlib import PurePath

import orjson

from drillcore_server.documents.parsing.limits import Refusal, UnparsableReason


class Format(enum.Enum):
    """The value is the media type."""

    TEXT = "text/plain"
    MARKDOWN = "text/markdown"
    HTML = "text/html"
    PDF = "application/pdf"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    JSON_LINES = "application/jsonl"


_BY_MEDIA_TYPE = {
    **{each.value: each for each in Format},
    "application/xhtml+xml": Format.HTML,
    "application/x-ndjson": Format.JSON_LINES,
    "application/x-jsonlines": Format.JSON_LINES,
    "text/x-markdown": Format.MARKDOWN,
}
_BY_SUFFIX = {
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".htm": Format.HTML,
    ".html": Format.HTML,
    ".xhtml": Format.HTML,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
}

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_UNSUPPORTED = (
    (b"{\\rtf", "is RTF; save it as DOCX"),
    (b"%!PS", "is PostScript; convert it to PDF"),
    (b"\x1f\x8b", "is compressed with gzip; unpack it first"),
    (b"BZh", "is compressed with bzip2; unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "is a 7-Zip archive; unpack it first"),
    (b"\x89PNG\r\n", "is an image; recognise its text first (OCR)"),
    (b"\xff\xd8\xff", "is an image; recognise its text first (OCR)"),
    (b"GIF8", "is an image; recognise its text first (OCR)"),
    (b"II*\x00", "is an image; recognise its text first (OCR)"),
    (b"MM\x00*", "is an image; recognise its text first (OCR)"),
    (b"\x7fELF", "is a program, not a document"),
)

_HTML_START = re.compile(
    r"\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--.{0,2000}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)
_HTML_TAG = re.compile(r"<(?:p|div|table|h[1-6]|ul|ol|span|br|a|title|meta)\b[^>]{0,500}>", re.I)
_XML_START = re.compile(r"\s*<\?xml\b")
_MARKDOWN_LINE = re.compile(r"^(?: {0,3}#{1,6}[ \t]+\S| {0,3}```| {0,3}~~~|\|[ :|-]+\|[ \t]*$)", re.M)
_HEAD_CHARS = 65_536


def detect_binary(content: bytes) -> Format | None:
    """Returns PDF, DOCX, or None for what may be text. Raises `Refusal` for a known format that is not supported."""
    if content.startswith(b"%PDF-") or (b"%PDF-" in content[:1024] and b"startxref" in content[-2048:]):
        return Format.PDF
    if content.startswith(b"PK\x03\x04"):
        return Format.DOCX
    if content.startswith(_OLE):
        raise _ole(content)
    for magic, message in _UNSUPPORTED:
        if content.startswith(magic):
            raise Refusal(UnparsableReason.UNSUPPORTED, message)
    return None


def detect_text(text: str, *, name: str, media_type: str | None) -> Format:
    """Returns text, Markdown, HTML or JSON lines. Raises `Refusal` for XML that is not HTML."""
    hint = hinted(name, media_type)
    head = text[:_HEAD_CHARS]
    if _HTML_START.match(head) or (hint is Format.HTML and _HTML_TAG.search(head)):
        return Format.HTML
    if _XML_START.match(head):
        raise Refusal(UnparsableReason.UNSUPPORTED, "is XML; convert it to HTML or text")
    if hint is Format.JSON_LINES or _starts_with_document(text):
        return Format.JSON_LINES
    return detect_markup(head, hint)


def detect_markup(head: str, hint: Format | None) -> Format:
    """Tells Markdown from plain text: they differ only in how headings and tables are marked."""
    return Format.MARKDOWN if hint is Format.MARKDOWN or _MARKDOWN_LINE.search(head) else Format.TEXT


def hinted(name: str, media_type: str | None) -> Format | None:
    declared = _BY_MEDIA_TYPE.get((media_type or "").partition(";")[0].strip().lower())
    return declared or _BY_SUFFIX.get(PurePath(name).suffix.lower())


def _starts_with_document(text: str) -> bool:
    """Tells whether the first line is a JSON object with a text. Only JSON lines begin so."""
    if not text.startswith("{"):
        return False
    try:
        first = orjson.loads(text.partition("\n")[0])
    except (orjson.JSONDecodeError, UnicodeError):
        return False
    return isinstance(first, dict) and isinstance(first.get("text"), str)


def _ole(content: bytes) -> Refusal:
    # Word stores a document with a password as an OLE file that contains the encrypted DOCX.
    if "EncryptedPackage".encode("utf-16-le") in content:
        return Refusal(UnparsableReason.ENCRYPTED, "is protected by a password; save it without")
    return Refusal(UnparsableReason.UNSUPPORTED, "is in an old Office format; save it as DOCX")

"""Detects the format and the character encoding of an upload, and decodes its characters, exactly or not at all.

The content decides. The name and the declared media type only decide where the content fits several formats.
"""

from __future__ import annotations

import codecs
import enum
import re
from dataclasses import dataclass
from pathlib import PurePath

import orjson

from drillcore_server.documents.model import Refusal, UnparsableReason


class Format(enum.Enum):
    """The value of each format is its media type."""

    TEXT = "text/plain"
    MARKDOWN = "text/markdown"
    HTML = "text/html"
    PDF = "application/pdf"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    JSON_LINES = "application/jsonl"


_BY_MEDIA_TYPE = {
    **{format_.value: format_ for format_ in Format},
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
    """Returns PDF, DOCX, or None if the content may be text. Raises `Refusal` for a known but unsupported format."""
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
    hint = hinted_format(name, media_type)
    head = text[:_HEAD_CHARS]
    if _HTML_START.match(head) or (hint is Format.HTML and _HTML_TAG.search(head)):
        return Format.HTML
    if _XML_START.match(head):
        raise Refusal(UnparsableReason.UNSUPPORTED, "is XML; convert it to HTML or text")
    if hint is Format.JSON_LINES or _starts_with_document(text):
        return Format.JSON_LINES
    return detect_markup(head, hint)


def detect_markup(head: str, hint: Format | None) -> Format:
    """Returns Markdown or plain text. They differ only in how headings and tables are marked."""
    return Format.MARKDOWN if hint is Format.MARKDOWN or _MARKDOWN_LINE.search(head) else Format.TEXT


def hinted_format(name: str, media_type: str | None) -> Format | None:
    """Returns the format that the media type names, else the file name's suffix."""
    declared = _BY_MEDIA_TYPE.get((media_type or "").partition(";")[0].strip().lower())
    return declared or _BY_SUFFIX.get(PurePath(name).suffix.lower())


def _starts_with_document(text: str) -> bool:
    """Tells whether the first line is a JSON object with a text. No other format begins like that."""
    if not text.startswith("{"):
        return False
    try:
        first = orjson.loads(text.partition("\n")[0])
    except (orjson.JSONDecodeError, UnicodeError):
        return False
    return isinstance(first, dict) and isinstance(first.get("text"), str)


def _ole(content: bytes) -> Refusal:
    # Word saves a document with a password as an OLE file that contains the encrypted DOCX.
    if "EncryptedPackage".encode("utf-16-le") in content:
        return Refusal(UnparsableReason.ENCRYPTED, "is protected by a password; save it without the password")
    return Refusal(UnparsableReason.UNSUPPORTED, "is in an old Office format; save it as DOCX")


# UTF-32 comes before UTF-16: its little-endian mark begins with the mark of UTF-16.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SNIFF_BYTES = 65_536
_CHARSET_SEARCH_BYTES = 8_192
_CONTROL_SHARE_MAX = 0.05
"""Content with a larger share of control characters is not text. Page feeds, escapes and a few NULs stay below it."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Decoded:
    text: str
    notes: tuple[str, ...]


def decode(content: bytes, *, declared: str | None = None) -> Decoded:
    """Returns the characters of a text file, including line ends and control characters.

    Raises `Refusal` for binary content and for damaged characters.
    """
    text, note = _characters(content, declared)
    return Decoded(text, (note, *_control_notes(text)))


def declared_charset(media_type: str | None, content: bytes) -> str | None:
    """Returns the charset that the media type names, else the one that a meta element near the start of HTML names."""
    head = content[:_CHARSET_SEARCH_BYTES].decode("ascii", "replace")
    found = _CHARSET.search(media_type or "") or ("<" in head and _CHARSET.search(head)) or None
    return found.group(1).lower() if found else None


def _characters(content: bytes, declared: str | None) -> tuple[str, str]:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return _strict(content[len(mark) :], encoding), f"decoded as {encoding}, byte order mark removed"
    wide = _wide_encoding(content)
    if wide:
        return _strict(content, wide), f"decoded as {wide}"
    try:
        return content.decode("utf-8"), "decoded as utf-8"
    except UnicodeDecodeError as error:
        return _not_utf8(content, declared, error)


def _strict(content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise _broken(encoding, error) from error


def _wide_encoding(content: bytes) -> str | None:
    """Recognises UTF-16 without a byte order mark: Latin text has a NUL in every other byte there."""
    head = content[: min(len(content), 4096) & ~1]
    if len(content) % 2 or len(head) < 4:
        return None
    even, odd = head[::2].count(0), head[1::2].count(0)
    half = len(head) // 2
    if odd > half * 0.6 and even < half * 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > half * 0.6 and odd < half * 0.05 else None


def _not_utf8(content: bytes, declared: str | None, error: UnicodeDecodeError) -> tuple[str, str]:
    _refuse_binary(content[:_SNIFF_BYTES].decode("latin-1"))
    declared_text = _try(content, declared) if declared not in {None, "utf-8", "utf8"} else None
    if declared_text is not None:
        return declared_text, f"decoded as {declared}, as declared"
    # Text in a legacy encoding hardly ever contains valid UTF-8 sequences. If there are some, this is damaged UTF-8.
    if _has_utf8_sequence(content):
        raise _broken("utf-8", error)
    for encoding in ("windows-1252", "latin-1"):
        text = _try(content, encoding)
        if text is not None:
            return text, f"decoded as {encoding}, because it is not valid utf-8"
    raise _broken("utf-8", error)


def _try(content: bytes, encoding: str | None) -> str | None:
    try:
        return content.decode(encoding or "utf-8")
    except (UnicodeError, LookupError):
        return None


def _has_utf8_sequence(content: bytes) -> bool:
    return any(character > "\x7f" for character in content.decode("utf-8", "ignore"))


def _broken(encoding: str, error: UnicodeDecodeError) -> Refusal:
    return Refusal(
        UnparsableReason.BROKEN_ENCODING,
        f"is not valid {encoding} at byte {error.start:,} ({error.reason}); save it again as UTF-8",
    )


def _control_notes(text: str) -> tuple[str, ...]:
    _refuse_binary(text[:_SNIFF_BYTES])
    count = len(_CONTROLS.findall(text))
    return (f"kept {count} control characters",) if count else ()


def _refuse_binary(head: str) -> None:
    if len(_CONTROLS.findall(head)) > max(2, len(head) * _CONTROL_SHARE_MAX):
        raise Refusal(UnparsableReason.NOT_TEXT, "is binary, not text; convert it to text, Markdown, HTML, PDF or DOCX")

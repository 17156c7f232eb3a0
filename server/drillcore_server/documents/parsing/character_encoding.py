"""Decodes bytes to characters, exactly or not at all."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from drillcore_server.documents.parsing.limits import Refusal, UnparsableReason

# The longer marks come first: UTF-32's little-endian mark begins with UTF-16's.
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
"""With a larger share of control characters, content is not text. Page feeds, escapes and a few NULs stay below it."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Decoded:
    text: str
    notes: tuple[str, ...]


def decode(content: bytes, *, declared: str | None = None) -> Decoded:
    """Returns the characters of a text file, including line ends and control characters. Raises `Refusal`."""
    text, note = _characters(content, declared)
    return Decoded(text, (note, *_control_notes(text)))


def storable(text: str) -> tuple[str, tuple[str, ...]]:
    """Replaces lone surrogates, which UTF-8 cannot hold, with U+FFFD. Returns the text and a note that says so."""
    if text.isascii():
        return text, ()
    replaced, count = _SURROGATES.subn("�", text)
    return replaced, (f"replaced {count} lone surrogates by U+FFFD",) if count else ()


def declared_charset(media_type: str | None, content: bytes) -> str | None:
    """Returns the charset that the media type names, or, in HTML, a meta element near the start."""
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
    """Recognises UTF-16 without a mark: Latin text in it has a NUL in every other byte."""
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
    # A legacy encoding hardly ever forms valid UTF-8 sequences by chance. If there are some, this is damaged UTF-8.
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

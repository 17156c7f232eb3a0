"""Reads DOCX: checks the whole zip first, converts it to HTML with mammoth, and reads the HTML with `html`."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from html import unescape
from importlib.metadata import version
from typing import IO

import mammoth

from drillcore_server.documents.model import (
    MIB,
    Budget,
    ParsedDocument,
    ParseLimits,
    Refusal,
    UnparsableReason,
    check_size,
)
from drillcore_server.documents.parsers.detect import Format
from drillcore_server.documents.parsers.html import parse_html
from drillcore_server.documents.parsers.text_blocks import title

_READ_BYTES = MIB
_ENCRYPTED_FLAG = 0x1
# Office writes no document type. A file with one can only be an attack by XML entities that expand without end.
_DOCUMENT_TYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))
_TITLE = re.compile(r"<dc:title[^>]*>([^<]{1,1000})</dc:title>")
# The ZIP reader raises NotImplementedError for a compression that it does not know, RuntimeError for an encrypted file.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError, NotImplementedError, RuntimeError)


def parse_docx(content: bytes, *, name: str, budget: Budget) -> ParsedDocument:
    """Raises `Refusal` if anything is wrong with the file."""
    stated = _checked_title(content, budget)
    budget.check_time()
    html = _to_html(content)
    notes = (f"docx to html with mammoth {version('mammoth')}",)
    document = parse_html(html, name=name, notes=notes, budget=budget, format_=Format.DOCX)
    return document if not stated else _titled(document, name, stated)


def _titled(document: ParsedDocument, name: str, stated: str) -> ParsedDocument:
    return ParsedDocument(
        text=document.text,
        media_type=document.media_type,
        title=title(document.text, document.blocks, name=name, stated=stated),
        blocks=document.blocks,
        preprocessing=document.preprocessing,
    )


def _checked_title(content: bytes, budget: Budget) -> str | None:
    """Checks the whole zip, then returns the title in its properties, if there is one."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check_declared(archive, len(content), budget.limits)
            _check_unpacked(archive, budget)
            return _stated_title(archive)
    except _DAMAGE as error:
        raise _malformed() from error


def _check_declared(archive: zipfile.ZipFile, packed_bytes: int, limits: ParseLimits) -> None:
    entries = archive.infolist()
    check_size(len(entries), limits.zip_entries_max, "entries in its zip")
    if "word/document.xml" not in archive.namelist() and "_rels/.rels" not in archive.namelist():
        raise Refusal(UnparsableReason.UNSUPPORTED, "is a zip, not a DOCX; unpack it first")
    if any(entry.flag_bits & _ENCRYPTED_FLAG for entry in entries):
        raise Refusal(UnparsableReason.ENCRYPTED, "has encrypted entries; save it without a password")
    _check_total(sum(entry.file_size for entry in entries), packed_bytes, limits)
    for entry in entries:
        if _is_xml(entry):
            check_size(entry.file_size, limits.xml_bytes_max, "bytes of XML in one part")


def _check_total(unpacked_bytes: int, packed_bytes: int, limits: ParseLimits) -> None:
    check_size(unpacked_bytes, limits.zip_bytes_max, "bytes when unpacked")
    if unpacked_bytes > MIB and unpacked_bytes > packed_bytes * limits.zip_ratio_max:
        raise Refusal(
            UnparsableReason.TOO_LARGE,
            f"unpacks to more than {limits.zip_ratio_max} times its size; save it again with a word processor",
        )


def _check_unpacked(archive: zipfile.ZipFile, budget: Budget) -> None:
    """Reads every XML part in pieces, since the size in the header of a part may be false."""
    unpacked_bytes = 0
    for entry in filter(_is_xml, archive.infolist()):
        with archive.open(entry) as part:
            unpacked_bytes += _check_part(part, budget)
        check_size(unpacked_bytes, budget.limits.zip_bytes_max, "bytes when unpacked")


def _check_part(part: IO[bytes], budget: Budget) -> int:
    """Checks that the tree of an XML part will fit into memory. Returns the size of the part in bytes."""
    size = tags = 0
    while piece := part.read(_READ_BYTES):
        budget.check_time()
        size += len(piece)
        tags += piece.count(b"<")
        check_size(size, budget.limits.xml_bytes_max, "bytes of XML in one part")
        check_size(tags, budget.limits.xml_tags_max, "tags of XML in one part")
        if any(mark in piece for mark in _DOCUMENT_TYPES):
            raise Refusal(UnparsableReason.MALFORMED, "declares XML entities; save it again")
    return size


def _is_xml(entry: zipfile.ZipInfo) -> bool:
    return entry.filename.lower().endswith((".xml", ".rels"))


def _stated_title(archive: zipfile.ZipFile) -> str | None:
    if "docProps/core.xml" not in archive.namelist():
        return None
    found = _TITLE.search(archive.read("docProps/core.xml").decode("utf-8", "replace"))
    return unescape(found.group(1)) if found else None


def _to_html(content: bytes) -> str:
    try:
        result = mammoth.convert_to_html(
            io.BytesIO(content),
            convert_image=mammoth.images.img_element(lambda _: {}),
            include_embedded_style_map=False,
            external_file_access=False,
        )
    except MemoryError:
        raise
    except Exception as error:  # mammoth raises all kinds of errors for a tree that it does not expect
        raise _malformed() from error
    return str(result.value)


def _malformed() -> Refusal:
    return Refusal(UnparsableReason.MALFORMED, "is a DOCX that cannot be read; save it again with a word processor")

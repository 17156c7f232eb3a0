"""The bytes of a core's records: msgpack, each value in its shortest form, so that the same content is the same bytes.

Numbers of vectors are floats of 32 bits where that is exact, else of 64.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from drillcore.cores.records import LibraryDocument
from drillcore.cores.tags import LIBRARY_BLOB, LIBRARY_METADATA, LISTS
from drillcore_server.domain.quads import Blank, Iri, Literal, Quad, Quoted, Term

_KNOWN_MAX: Final = 1_000
"""IRIs whose bytes are at hand: those of neighbouring quads are mostly the same."""

pack: Final = msgspec.msgpack.Encoder(uuid_format="bytes").encode
"""A value that is no vector."""


def listing(tag: str, meta: bytes, items: Sequence[bytes]) -> bytes:
    """A record with a list, whose items are packed."""
    head = _RECORD + pack(tag) + b"\x82\xa1m" + meta + pack(LISTS[tag]) + array_head(len(items))
    return head + b"".join(items)


def described(document: LibraryDocument) -> bytes:
    payload = {
        "i": document.id,
        "k": document.kind,
        "t": document.title,
        "p": document.parent,
        "d": document.type,
        "c": document.comments,
        "g": list(document.tags),
    }
    return pack([LIBRARY_METADATA, payload])


def blob_head(document_id: str, encoded_bytes: int) -> bytes:
    """Of a blob whose content, in base64, follows."""
    return _RECORD + pack(LIBRARY_BLOB) + b"\x82\xa1i" + pack(document_id) + b"\xa1d" + text_head(encoded_bytes)


def triple(quad: Quad) -> bytes:
    terms = b"\xa1s" + term(quad.subject) + b"\xa1p" + term(quad.predicate) + b"\xa1o" + term(quad.object)
    return b"\x84" + terms + _graph(quad.graph) if quad.graph else b"\x83" + terms


def term(of: Term) -> bytes:
    match of:
        case Iri(value):
            return _iri(value)
        case Literal(value, datatype, language):
            return _literal(value, datatype, language)
        case Blank(label):
            return b"\x82\xa1t\xa1b\xa1d" + pack(label)
        case Quoted(subject, predicate, object_):
            return b"\x82\xa1t\xa1t\xa2tr" + triple(Quad(subject, predicate, object_))


def entity(of: bytes, vector: bytes) -> bytes:
    """A term and its vector, both packed."""
    return b"\x82\xa1e" + of + b"\xa1v" + vector


def embedded_chunk(chunk_id: str, vector: bytes) -> bytes:
    return b"\x82\xa1i" + pack(chunk_id) + b"\xa1v" + vector


def floats(vector: npt.NDArray[np.floating[Any]]) -> bytes:
    """A vector of finite numbers."""
    exact = vector.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):  # a number that does not fit shows in the comparison
        short = vector.astype(">f4")
    if not np.array_equal(short, exact):
        return array_head(len(vector)) + b"".join(map(_float, exact.tolist(), (short == exact).tolist()))
    packed = np.empty((len(vector), 5), np.uint8)
    packed[:, 0] = 0xCA
    packed[:, 1:] = short.view(np.uint8).reshape(-1, 4)
    return array_head(len(vector)) + packed.tobytes()


def array_head(length: int) -> bytes:
    if length < 16:
        return bytes([0x90 | length])
    return b"\xdc" + length.to_bytes(2, "big") if length < 1 << 16 else b"\xdd" + length.to_bytes(4, "big")


def text_head(length: int) -> bytes:
    if length < 32:
        return bytes([0xA0 | length])
    if length < 1 << 8:
        return b"\xd9" + length.to_bytes(1, "big")
    return b"\xda" + length.to_bytes(2, "big") if length < 1 << 16 else b"\xdb" + length.to_bytes(4, "big")


_RECORD: Final = array_head(2)


def _float(number: float, is_short: bool) -> bytes:
    return struct.pack(">Bf", 0xCA, number) if is_short else struct.pack(">Bd", 0xCB, number)


@lru_cache(_KNOWN_MAX)
def _iri(value: str) -> bytes:
    return b"\x82\xa1t\xa1i\xa1i" + pack(value)


@lru_cache(_KNOWN_MAX)
def _graph(value: str) -> bytes:
    return b"\xa1g" + pack(value)


def _literal(value: str, datatype: str, language: str) -> bytes:
    further = (b"\xa2dt" + pack(datatype) if datatype else b"") + (b"\xa2ln" + pack(language) if language else b"")
    return bytes([0x82 + bool(datatype) + bool(language)]) + b"\xa1t\xa1l\xa1v" + pack(value) + further

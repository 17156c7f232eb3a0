"""Encodes a core's records as msgpack, each value in its shortest form, so that the same content gives the same bytes.

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

from drillcore_formats.cores.format import LIBRARY_BLOB, LIBRARY_METADATA, LISTS
from drillcore_formats.cores.records import LibraryDocument
from drillcore_formats.quads import Blank, Iri, Literal, Quoted, Term
from drillcore_server.cores.model import HALF
from drillcore_server.graphs.quad_model import Quad
from drillcore_server.vectors.stored_vectors import unpacked

_KNOWN_MAX: Final = 1_000
"""IRIs whose bytes are cached: neighbouring quads mostly share them."""

pack: Final = msgspec.msgpack.Encoder(uuid_format="bytes").encode
"""Packs a value that is not a vector."""
_decode: Final = msgspec.msgpack.Decoder().decode


def listing(tag: str, meta: bytes, items: Sequence[bytes]) -> bytes:
    """Returns a record with a list of packed items."""
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
    """Returns the beginning of a blob; its content in base64 follows."""
    return _RECORD + pack(LIBRARY_BLOB) + b"\x82\xa1i" + pack(document_id) + b"\xa1d" + text_head(encoded_bytes)


def triple(quad: Quad) -> bytes:
    subject, predicate, object_, graph = quad
    terms = b"\xa1s" + term(subject) + b"\xa1p" + term(predicate) + b"\xa1o" + term(object_)
    return b"\x84" + terms + _graph(graph) if graph else b"\x83" + terms


def encoded_triple(quad: bytes) -> bytes:
    """Like `triple`, for a quad that `encoded_quad` encoded."""
    subject, predicate, object_, graph = _decode(quad)
    terms = b"\xa1s" + _plain(subject) + b"\xa1p" + _plain(predicate) + b"\xa1o" + _plain(object_)
    return b"\x84" + terms + _graph(graph) if graph else b"\x83" + terms


def term(value: Term) -> bytes:
    if type(value) is Iri:  # by far the most frequent, and the fastest check
        return _iri(value.value)
    match value:
        case Literal(text, datatype, language):
            return _literal(text, datatype, language)
        case Blank(label):
            return _blank(label)
        case Quoted(subject, predicate, object_):
            return _QUOTED + triple(Quad(subject, predicate, object_))
        case Iri(iri):
            return _iri(iri)


def entity(packed_term: bytes, vector: bytes) -> bytes:
    """Returns a term and its vector, both of which are packed already."""
    return b"\x82\xa1e" + packed_term + b"\xa1v" + vector


def embedded_chunk(chunk_id: str, vector: bytes) -> bytes:
    return b"\x82\xa1i" + pack(chunk_id) + b"\xa1v" + vector


def halves(stored: bytes) -> npt.NDArray[np.float16]:
    """Returns a stored vector as the records of chunks have it. An import gets the stored bytes from it again."""
    return unpacked(stored).astype(HALF)


def floats(vector: npt.NDArray[np.floating[Any]]) -> bytes:
    """Packs a vector of finite numbers."""
    if vector.dtype.itemsize <= 4:
        return array_head(len(vector)) + _fixed(vector.astype(">f4"), 0xCA)
    with np.errstate(over="ignore", under="ignore"):  # the comparison shows a number that does not fit
        is_short = vector.astype(np.float32) == vector
    if not is_short.any():
        return array_head(len(vector)) + _fixed(vector.astype(">f8"), 0xCB)
    return array_head(len(vector)) + b"".join(map(_float, vector.tolist(), is_short.tolist()))


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
_QUOTED: Final = b"\x82\xa1t\xa1t\xa2tr"


def _fixed(numbers: npt.NDArray[Any], head: int) -> bytes:
    """Returns numbers of one size, in the byte order of the file, each after its head."""
    packed = np.empty((len(numbers), 1 + numbers.dtype.itemsize), np.uint8)
    packed[:, 0] = head
    packed[:, 1:] = numbers.view(np.uint8).reshape(-1, numbers.dtype.itemsize)
    return packed.tobytes()


def _float(number: float, is_short: bool) -> bytes:
    return struct.pack(">Bf", 0xCA, number) if is_short else struct.pack(">Bd", 0xCB, number)


def _plain(term: list[Any]) -> bytes:
    """Returns a term as it is encoded: its kind, then its parts."""
    kind = term[0]
    if kind == "i":
        return _iri(term[1])
    if kind == "l":
        return _literal(*term[1:])
    if kind == "b":
        return _blank(term[1])
    subject, predicate, object_ = map(_plain, term[1:])
    return _QUOTED + b"\x83\xa1s" + subject + b"\xa1p" + predicate + b"\xa1o" + object_


def _blank(label: str) -> bytes:
    return b"\x82\xa1t\xa1b\xa1d" + pack(label)


@lru_cache(_KNOWN_MAX)
def _iri(value: str) -> bytes:
    return b"\x82\xa1t\xa1i\xa1i" + pack(value)


@lru_cache(_KNOWN_MAX)
def _graph(value: str) -> bytes:
    return b"\xa1g" + pack(value)


def _literal(value: str, datatype: str, language: str) -> bytes:
    if datatype:
        return b"\x83\xa1t\xa1l\xa1v" + pack(value) + _datatype(datatype)
    if language:
        return b"\x83\xa1t\xa1l\xa1v" + pack(value) + b"\xa2ln" + pack(language)
    return b"\x82\xa1t\xa1l\xa1v" + pack(value)


@lru_cache(_KNOWN_MAX)
def _datatype(value: str) -> bytes:
    return b"\xa2dt" + pack(value)

"""Generates core files of any size as TrustGraph writes them, and measures what bare msgpack takes for a file."""

from __future__ import annotations

import base64
import random
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

DIMENSIONS = 384
_VECTOR = f"<{DIMENSIONS}f"
TRIPLES, ENTITIES, PAGES = 1_000, 100, 2
"""One round: pages with their text, and the triples and vectors found in them. By size about 3 parts triples, 5 parts
vectors and 2 parts pages."""
PAGE_BYTES = 40_000
_WORDS = tuple(f"word{number}" for number in range(5_000))
_META = {"i": "urn:benchmark:core", "m": "urn:benchmark:core", "c": "default"}


def write_core(path: Path, size_bytes: int) -> int:
    """Writes a file of about this size and returns its exact size. The same size gives the same file."""
    chance, written = random.Random(7), 0
    with path.open("wb") as file:
        number = 0
        while written < size_bytes:
            for record in _records(chance, number):
                written += file.write(msgpack.packb(record, use_bin_type=True))
            number += 1
    return written


def _records(chance: random.Random, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "t", {"m": _META, "t": [_triple(chance, number, place) for place in range(TRIPLES)]}
    entities = [_entity(chance, number, place) for place in range(ENTITIES)]
    yield "ge", {"m": _META, "e": entities}
    for place in range(PAGES):
        page = f"urn:benchmark:page:{number}:{place}"
        yield "lm", {"i": page, "k": "text/plain", "t": page, "p": "", "d": "page", "c": "", "g": []}
        yield "lb", {"i": page, "d": base64.b64encode(_text(chance, PAGE_BYTES).encode()).decode()}


def _triple(chance: random.Random, number: int, place: int) -> dict[str, Any]:
    said = {"t": "l", "v": _text(chance, 80)} if place % 2 else _iri(f"entity:{chance.randrange(number + 1)}:{place}")
    return {
        "s": _iri(f"entity:{number}:{place // 5}"),
        "p": _iri(f"says:{chance.randrange(50)}"),
        "o": said,
        "g": "urn:graph:source",
    }


def _entity(chance: random.Random, number: int, place: int) -> dict[str, Any]:
    """Numbers have 32 bits, as models make them, and are written with 64, as TrustGraph does."""
    numbers = [chance.uniform(-1, 1) for _ in range(DIMENSIONS)]
    return {"e": _iri(f"entity:{number}:{place}"), "v": list(struct.unpack(_VECTOR, struct.pack(_VECTOR, *numbers)))}


def _iri(name: str) -> dict[str, str]:
    return {"t": "i", "i": f"http://benchmark.example.org/{name}"}


def _text(chance: random.Random, characters: int) -> str:
    return " ".join(chance.choices(_WORDS, k=characters // 8))


@dataclass(frozen=True)
class Bare:
    """Seconds that msgpack alone takes to unpack the same records and pack them again."""

    unpack_s: float
    pack_s: float


def bare(path: Path) -> Bare:
    unpack_s = pack_s = 0.0
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(file, raw=False, max_buffer_size=(1 << 31) - 1, read_size=1 << 20)
        while True:
            started = time.perf_counter()
            try:
                record = unpacker.unpack()
            except msgpack.OutOfData:
                return Bare(unpack_s, pack_s)
            unpacked = time.perf_counter()
            msgpack.packb(record, use_bin_type=True)
            unpack_s += unpacked - started
            pack_s += time.perf_counter() - unpacked

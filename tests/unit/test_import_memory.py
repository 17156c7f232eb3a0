"""To check a core takes little memory, however large it is."""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import Iterator

import msgpack
import pytest

from drillcore.cores import InvalidCore
from drillcore_server.exporting.sealed_file import SealedFile
from drillcore_server.importing.reading import check_core

MEGABYTES = 1 << 20


def iri(value: str) -> dict[str, str]:
    return {"t": "i", "i": value}


def large_blob(size_bytes: int) -> Iterator[bytes]:
    """A library document with so many bytes of content."""
    yield msgpack.packb(["lm", {"i": "urn:large"}])
    encoded = size_bytes // 3 * 4
    yield b"\x92\xa2lb\x82\xa1i" + msgpack.packb("urn:large") + b"\xa1d\xdb" + encoded.to_bytes(4, "big")
    piece = base64.b64encode(bytes(3 * 1024))
    for _ in range(encoded // len(piece)):
        yield piece


def many_triples(records: int) -> Iterator[bytes]:
    for one in range(records):
        said = [{"s": iri(f"urn:s:{one}:{n}"), "p": iri("urn:p"), "o": iri(f"urn:o:{n}")} for n in range(1_000)]
        yield msgpack.packb(["t", {"m": {"i": "urn:core"}, "t": said}])


def many_vectors(records: int) -> Iterator[bytes]:
    for one in range(records):
        said = [{"e": iri(f"urn:e:{one}:{n}"), "v": [n + 0.5] * 256} for n in range(100)]
        yield msgpack.packb(["ge", {"m": {"i": "urn:core"}, "e": said}])


def peak_of(pieces: Iterator[bytes]) -> tuple[int, int]:
    """How large the core is, and how much memory it took."""
    with SealedFile() as file:
        for piece in pieces:
            file.write(piece)
        tracemalloc.start()
        try:
            with check_core(file, strict=True, tell=lambda *_: None) as core:
                assert sum(1 for _ in core.quads) + sum(1 for _ in core.vectors) + len(core.library) > 0
            return file.size_bytes, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("pieces", "large"),
    [(large_blob(96 * MEGABYTES), 100), (many_triples(200), 10), (many_vectors(150), 20)],
    ids=["a large document", "many triples", "many vectors"],
)
def test_a_core_is_checked_in_bounded_memory(pieces: Iterator[bytes], large: int) -> None:
    size_bytes, peak_bytes = peak_of(pieces)
    assert size_bytes > large * MEGABYTES
    assert peak_bytes < 48 * MEGABYTES


def test_a_record_that_claims_to_be_larger_than_the_file_takes_no_memory() -> None:
    with SealedFile() as file:
        file.write(b"\x92\xa1t\xdf\xff\xff\xff\xff")
        tracemalloc.start()
        try:
            with pytest.raises(InvalidCore):
                check_core(file, strict=False, tell=lambda *_: None)
            assert tracemalloc.get_traced_memory()[1] < 4 * MEGABYTES
        finally:
            tracemalloc.stop()

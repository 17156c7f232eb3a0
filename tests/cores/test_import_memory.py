"""Checking a core takes little memory, however large the core is."""

from __future__ import annotations

import base64
import io
import tracemalloc
from collections.abc import Callable, Iterator

import msgpack
import pytest

from drillcore_formats.cores import InvalidCore
from drillcore_formats.cores.parts import PART_KIND
from drillcore_server.cores.imports import library_documents as library
from drillcore_server.cores.imports.check_core import check_core
from drillcore_server.storage.sealed_file import SealedFile
from tests.cores.test_contradicting_cores import GOLDEN

MEGABYTES = 1 << 20


def iri(value: str) -> dict[str, str]:
    return {"t": "i", "i": value}


def large_blob(size_bytes: int) -> Iterator[bytes]:
    """A library document with this many bytes of content."""
    yield msgpack.packb(["lm", {"i": "urn:large"}])
    encoded = size_bytes // 3 * 4
    yield b"\x92\xa2lb\x82\xa1i" + msgpack.packb("urn:large") + b"\xa1d\xdb" + encoded.to_bytes(4, "big")
    piece = base64.b64encode(bytes(3 * 1024))
    for _ in range(encoded // len(piece)):
        yield piece


def many_triples(records: int) -> Iterator[bytes]:
    for record in range(records):
        said = [{"s": iri(f"urn:s:{record}:{n}"), "p": iri("urn:p"), "o": iri(f"urn:o:{n}")} for n in range(1_000)]
        yield msgpack.packb(["t", {"m": {"i": "urn:core"}, "t": said}])


def many_vectors(records: int) -> Iterator[bytes]:
    for record in range(records):
        said = [{"e": iri(f"urn:e:{record}:{n}"), "v": [n + 0.5] * 256} for n in range(100)]
        yield msgpack.packb(["ge", {"m": {"i": "urn:core"}, "e": said}])


def peak_of(pieces: Iterator[bytes]) -> tuple[int, int]:
    """Checks a core. Returns its size, and the memory that the check took."""
    with SealedFile() as file:
        for piece in pieces:
            file.write(piece)
        tracemalloc.start()
        try:
            with check_core(file, strict=True, progress=lambda *_: None) as core:
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
                check_core(file, strict=False, progress=lambda *_: None)
            assert tracemalloc.get_traced_memory()[1] < 4 * MEGABYTES
        finally:
            tracemalloc.stop()


def array(length: int) -> bytes:
    return b"\xdd" + length.to_bytes(4, "big")


def empty_lists_in_a_triple() -> Iterator[bytes]:
    yield b"\x92\xa1t\x81\xa1t\x91\x81\xa1s" + array(4 * MEGABYTES) + b"\x90" * (4 * MEGABYTES)


def empty_maps_in_a_description() -> Iterator[bytes]:
    yield b"\x92\xa1t\x81\xa1m\x81\xa1m" + array(4 * MEGABYTES) + b"\x80" * (4 * MEGABYTES)


def keys_of_a_record() -> Iterator[bytes]:
    yield b"\x92\xa1t\xdf" + MEGABYTES.to_bytes(4, "big")
    yield b"".join(b"\xa5%05x\xc0" % number for number in range(MEGABYTES))


def values_in_a_part(value: bytes, count: int) -> Iterator[bytes]:
    """A full core whose first part has a record with this many values."""
    found = list(msgpack.Unpacker(io.BytesIO(GOLDEN), raw=False))
    blob = 1 + next(n for n, (tag, said) in enumerate(found) if tag == "lm" and said["k"] == PART_KIND)
    found[blob][1]["d"] = base64.b64encode(b"\x92\xa4fact" + array(count) + value * count)
    yield b"".join(map(msgpack.packb, found))


@pytest.mark.parametrize(
    "pieces",
    [
        empty_lists_in_a_triple(),
        empty_maps_in_a_description(),
        keys_of_a_record(),
        values_in_a_part(b"\x90", 4 * MEGABYTES),
        values_in_a_part(b"\xc0", 16 * MEGABYTES),
        values_in_a_part(b"\xdc\xff\xff" + b"\xc0" * 65_535, 100),
    ],
    ids=["a triple", "a description", "keys", "lists in a part", "nothings in a part", "long lists in a part"],
)
def test_values_that_take_far_more_memory_than_bytes_are_refused(pieces: Iterator[bytes]) -> None:
    with SealedFile() as file:
        for piece in pieces:
            file.write(piece)
        tracemalloc.start()
        try:
            with pytest.raises(InvalidCore):
                check_core(file, strict=False, progress=lambda *_: None)
            assert tracemalloc.get_traced_memory()[1] < 8 * file.size_bytes
        finally:
            tracemalloc.stop()


def test_unknown_tags_are_not_remembered() -> None:
    with SealedFile() as file:
        for number in range(20_000):
            file.write(b"\x92" + msgpack.packb(f"{number:250}") + b"\xc0")
        tracemalloc.start()
        try:
            with check_core(file, strict=False, progress=lambda *_: None) as core:
                assert core.skips.count == 20_000
            assert tracemalloc.get_traced_memory()[1] < 3 * MEGABYTES
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    "record",
    [
        lambda number: ["lm", {"i": f"{number:7000}", "p": f"{-number:7000}"}],
        lambda number: ["lb", {"i": f"{number:14000}", "d": ""}],
    ],
    ids=["described", "content"],
)
def test_the_ids_of_all_library_documents_have_a_common_limit(
    record: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "IDS_BYTES_MAX", MEGABYTES)
    with SealedFile() as file:
        for number in range(100, 200):
            file.write(msgpack.packb(record(number)))
        with pytest.raises(InvalidCore, match="ids of its library documents"):
            check_core(file, strict=False, progress=lambda *_: None)


def test_a_report_fits_into_an_answer_however_long_the_ids_are() -> None:
    with SealedFile() as file:
        for number in range(1_100):
            file.write(msgpack.packb(["lb", {"i": f"{number:8000}", "d": ""}]))
        with check_core(file, strict=False, progress=lambda *_: None) as core:
            assert core.skips.count == 1_100
            assert len(core.skips.reported) == 1_000
            assert sum(len(skip.id) + len(skip.message) for skip in core.skips.reported) < MEGABYTES

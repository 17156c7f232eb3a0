"""Records are found in any stream of bytes, and an invalid core is refused with the record and the place."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_formats.cores import InvalidCore, inspect
from drillcore_formats.cores.format import PIECE_BYTES, RECORD_BYTES_MAX
from drillcore_formats.cores.framing import Blob, Record, read_core
from drillcore_formats.cores.records import read_library, read_listing
from drillcore_formats.cores.terms import read_triple

IRI = {"t": "i", "i": "urn:x:1"}
META = {"i": "core", "m": "root", "c": "default"}


def packed(*records: Any) -> bytes:
    return b"".join(msgpack.packb(record, use_bin_type=True) for record in records)


def triples(count: int) -> list[Any]:
    found = [{"s": IRI, "p": IRI, "o": {"t": "l", "v": f"text {number}"}, "g": "urn:g"} for number in range(count)]
    return ["t", {"m": META, "t": found}]


def blob(id_: str, content: bytes) -> list[Any]:
    return ["lb", {"i": id_, "d": base64.b64encode(content).decode()}]


def described(id_: str) -> list[Any]:
    return ["lm", {"i": id_, "k": "text/plain", "t": "A title", "p": "", "d": "source", "c": "", "g": ["a"]}]


def pieces_of(data: bytes, size: int) -> Iterator[bytes]:
    yield from (data[at : at + size] for at in range(0, len(data), size))


def told(parts: Iterator[Record | Blob]) -> list[Any]:
    """Everything that the reader yields, in full."""
    return [
        (part.number, part.offset, part.id, b"".join(part.pieces()))
        if isinstance(part, Blob)
        else (part.number, part.offset, part.tag, part.data)
        for part in parts
    ]


ENTITIES = ["ge", {"m": META, "e": [{"e": IRI, "v": [0.5, 1.0]}]}]
CORE = packed(triples(3), ENTITIES, described("d"), blob("d", b"x" * 999))


@given(st.integers(1, 200))
def test_records_are_found_however_the_file_is_split_into_pieces(size: int) -> None:
    assert told(read_core(pieces_of(CORE, size))) == told(read_core([CORE]))


def test_records_keep_their_bytes_numbers_and_places() -> None:
    found = told(read_core([CORE]))
    assert [record[0] for record in found] == [1, 2, 3, 4]
    assert b"".join(record[3] for record in found[:3]) == CORE[: found[3][1]]
    assert found[3][2:] == ("d", b"x" * 999)


@given(st.integers(0, len(CORE) - 1), st.integers(1, 300))
def test_a_truncated_file_is_refused_unless_it_ends_between_records(end: int, size: int) -> None:
    boundaries = {0, *(record[1] for record in told(read_core([CORE])))}
    if end in boundaries:
        told(read_core(pieces_of(CORE[:end], size)))
        return
    with pytest.raises(InvalidCore, match="the file ends in the middle of it") as refused:
        told(read_core(pieces_of(CORE[:end], size)))
    assert refused.value.offset_bytes == max(boundary for boundary in boundaries if boundary < end)


def test_a_blob_is_read_in_pieces_and_its_unread_rest_is_skipped() -> None:
    content = bytes(range(256)) * 20_000
    data = packed(described("a"), blob("a", content), described("b"), blob("b", b"short"))
    largest = 0
    for part in read_core(pieces_of(data, 100_000)):
        if isinstance(part, Blob) and part.id == "a":
            largest = len(next(part.pieces()))
    assert 0 < largest <= PIECE_BYTES
    kept = [b"".join(part.pieces()) for part in read_core(pieces_of(data, 100_000)) if isinstance(part, Blob)]
    assert kept == [content, b"short"]


@pytest.mark.parametrize("content", ["text", b"bin"])
def test_the_content_of_a_blob_may_be_a_text_or_bytes_and_stand_before_its_id(content: str | bytes) -> None:
    encoded = base64.b64encode(b"the content")
    value = encoded.decode() if isinstance(content, str) else encoded
    data = packed(["lb", {"new": [1, {"a": 2}], "d": value, "i": "late"}], triples(1))
    for size in (1, 7, 1000):
        first = next(read_core(pieces_of(data, size)))
        assert isinstance(first, Blob)
        assert first.id is None
        assert b"".join(first.pieces()) == b"the content"
        assert first.id == "late"
        assert len(told(read_core(pieces_of(data, size)))) == 2


WRONG = {
    "not msgpack": (b"\xc1", "array of a tag"),
    "text": (b"hello", "array of a tag"),
    "a map": (packed({"t": 1}), "array of a tag"),
    "three values": (packed(["t", {}, 1]), "array of a tag"),
    "a tag that is a number": (packed([1, {}]), "its tag is not a text"),
    "a tag that is too long": (packed(["t" * 300, {}]), "its tag is not a text"),
    "broken inside": (b"\x92\xa1t\x81\xa1t\xc1", "not msgpack"),
    "too deep": (b"\x92\xa1x" + b"\x91" * 5_000 + b"\x90", "nested too deeply"),
    "a blob that is a list": (packed(["lb", []]), "not a map"),
    "a blob of a number": (packed(["lb", {"i": "a", "d": 5}]), "content is not a text"),
    "a blob without id": (packed(["lb", {"d": "YQ=="}]), "it has no id"),
    "a blob whose id is a number": (packed(["lb", {"i": 5, "d": "YQ=="}]), "its id is not a text"),
    "a blob that is no base64": (packed(["lb", {"i": "a", "d": "!!!!"}]), "not base64"),
    "a blob that ends early": (packed(["lb", {"i": "a", "d": "YWE"}]), "not base64"),
    "a blob with padding inside": (packed(["lb", {"i": "a", "d": "YQ==YQ=="}]), "not base64"),
    "a blob with two contents": (b"\x92\xa2lb\x83\xa1i\xa1a\xa1d\xa0\xa1d\xa0", "twice"),
}


@pytest.mark.parametrize(("data", "why"), WRONG.values(), ids=WRONG)
def test_an_invalid_core_is_refused_with_the_record_and_the_place(data: bytes, why: str) -> None:
    begin = len(packed(triples(2)))
    with pytest.raises(InvalidCore, match=why) as refused:
        told(read_core([packed(triples(2)) + data + packed(triples(1))]))
    assert (refused.value.record, refused.value.offset_bytes) == (2, begin)


def test_a_record_that_declares_a_huge_size_is_refused_before_it_is_read() -> None:
    given_bytes = 0

    def endless() -> Iterator[bytes]:
        nonlocal given_bytes
        yield b"\x92\xa1t\x81\xa1t\xdb\xff\xff\xff\xff"
        while True:
            given_bytes += 1 << 20
            yield b"\x00" * (1 << 20)

    with pytest.raises(InvalidCore, match="more than"):
        told(read_core(endless()))
    assert given_bytes <= RECORD_BYTES_MAX + (2 << 20)


WRONG_INSIDE = {
    "a list that is a map": (["t", {"m": META, "t": {}}], "its list is not an array"),
    "an item that is a number": (["t", {"m": META, "t": [1]}], "not a map"),
    "a payload that is a list": (["t", []], "not a map"),
    "a description that is a list": (["t", {"m": [], "t": []}], "description"),
    "an id that is a number": (["t", {"m": {"i": 5}, "t": []}], "i is not a text"),
    "a graph that is a number": (["t", {"m": META, "t": [{"s": IRI, "p": IRI, "o": IRI, "g": 1}]}], "graph"),
    "a term that is a text": (["t", {"m": META, "t": [{"s": "a", "p": IRI, "o": IRI}]}], "term is not a map"),
    "an IRI that is a number": (["t", {"m": META, "t": [{"s": {"t": "i", "i": 4}, "p": IRI, "o": IRI}]}], "not a text"),
    "a vector that is a text": (["ge", {"m": META, "e": [{"e": IRI, "v": "a"}]}], "vector is not a list"),
    "a vector of texts": (["ge", {"m": META, "e": [{"e": IRI, "v": ["a"]}]}], "list of numbers"),
    "a vector of booleans": (["de", {"m": META, "c": [{"i": "c", "v": [True]}]}], "list of numbers"),
    "a document without id": (["lm", {"k": "text/plain"}], "no id"),
    "a document with tags that are no list": (["lm", {"i": "a", "g": "tag"}], "tags"),
    "a text that is no UTF-8": (["t", {"m": META, "t": [{"s": IRI, "p": IRI, "o": {"t": "l", "v": "~~~~"}}]}], "UTF-8"),
}


@pytest.mark.parametrize(("record", "why"), WRONG_INSIDE.values(), ids=WRONG_INSIDE)
def test_a_record_of_the_wrong_shape_is_refused(record: Any, why: str) -> None:
    data = packed(triples(1), record).replace(b"~~~~", b"\xff\xff\xff\xff")
    with pytest.raises(InvalidCore, match=why) as refused:
        inspect(io.BytesIO(data))
    assert refused.value.record == 2


def test_quoted_triples_may_nest_up_to_a_limit() -> None:
    def nested(depth: int) -> dict[str, Any]:
        return {"t": "t", "tr": {"s": nested(depth - 1), "p": IRI, "o": IRI}} if depth else IRI

    def core(depth: int) -> io.BytesIO:
        return io.BytesIO(packed(["t", {"m": META, "t": [{"s": nested(depth), "p": IRI, "o": IRI}]}]))

    assert inspect(core(8)).quads == {"(default graph)": 1}
    with pytest.raises(InvalidCore, match="nested more than"):
        inspect(core(9))


def test_both_dialects_of_terms_give_the_same_triple() -> None:
    current = {"s": IRI, "p": IRI, "o": {"t": "l", "v": "text"}}
    old = {"s": {"v": "urn:x:1", "e": True}, "p": {"v": "urn:x:1", "e": True}, "o": {"v": "text", "e": False}}
    assert read_triple(current) == read_triple(old) == (("i", "urn:x:1"), ("i", "urn:x:1"), ("l", "text", "", ""), "")


def test_a_core_of_the_older_trustgraph_is_read() -> None:
    term = {"v": "urn:x:1", "e": True}
    meta = {"i": "core", "m": [{"s": term, "p": term, "o": term}], "u": "someone", "c": "default"}
    entity = {"e": term, "v": [[0.5, 0.25, 1.0], [1.0, 0.0, 0.0]]}
    data = packed(["t", {"m": meta, "t": [{"s": term, "p": term, "o": term}]}], ["ge", {"m": meta, "e": [entity]}])
    found = inspect(io.BytesIO(data))
    assert (found.core_id, found.quads, found.entities) == ("core", {"(default graph)": 2}, {3: 2})
    record = next(read_core([data]))
    assert isinstance(record, Record)
    listing = read_listing(record)
    assert [read_triple(triple) for triple in listing.meta.triples] == [(("i", "urn:x:1"),) * 3 + ("",)]


def test_a_summary_counts_the_records_of_the_file() -> None:
    unknown = ["zz", {"anything": [1, 2]}]
    chunks = ["de", {"m": META, "c": [{"i": "c1", "v": [0.5] * 4}, {"i": "c2", "v": []}]}]
    no_term = ["t", {"m": META, "t": [{"s": {"t": ""}, "p": IRI, "o": IRI}]}]
    found = inspect(io.BytesIO(CORE + packed(unknown, chunks, no_term)))
    assert found.records == {"t": 2, "ge": 1, "lm": 1, "lb": 1, "zz": 1, "de": 1}
    assert (found.quads, found.entities, found.chunks) == ({"urn:g": 3}, {2: 1}, {4: 1})
    assert (found.library_documents, found.library_bytes, found.invalid_terms) == (1, 999, 1)
    assert (found.root, found.whole) == (None, False)


def test_a_library_document_may_leave_out_everything_but_its_id() -> None:
    record = next(read_core([packed(["lm", {"i": "only"}])]))
    assert isinstance(record, Record)
    assert read_library(record).id == "only"

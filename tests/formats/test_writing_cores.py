"""Writing cores: the shortest msgpack, a fixed order, and sets of ids that need little memory."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import msgpack
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from drillcore_formats.cores.terms import Triple, read_triple, write_triple
from drillcore_formats.quads import Blank, Iri, Literal, Quoted, Term
from drillcore_server.cores.writer.core_records import array_head, blob_head, encoded_triple, floats, text_head, triple
from drillcore_server.cores.writer.quads import BySource, IdSet, cut, in_order
from drillcore_server.graphs.quad_model import Quad, encoded_quad

ATOMS: st.SearchStrategy[Term] = st.one_of(
    st.builds(Iri, st.text()),
    st.builds(Blank, st.text()),
    st.builds(Literal, st.text(), st.text(), st.just("")),
    st.builds(Literal, st.text(), st.just(""), st.text()),
)
TERMS = st.recursive(ATOMS, lambda inner: st.builds(Quoted, inner, inner, inner), max_leaves=5)
QUADS = st.builds(Quad, TERMS, TERMS, TERMS, st.text())
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def plain(term: Term) -> tuple[Any, ...]:
    match term:
        case Iri(value):
            return ("i", value)
        case Blank(label):
            return ("b", label)
        case Literal(value, datatype, language):
            return ("l", value, datatype, language)
        case Quoted(subject, predicate, object_):
            return ("t", plain(subject), plain(predicate), plain(object_))


@given(QUADS)
def test_a_quad_is_written_as_msgpack_would_write_it_and_read_back_unchanged(quad: Quad) -> None:
    same = Triple(plain(quad.subject), plain(quad.predicate), plain(quad.object), quad.graph)
    packed = triple(quad)
    assert packed == encoded_triple(encoded_quad(quad)) == msgpack.packb(write_triple(same))
    assert read_triple(msgpack.unpackb(packed)) == same


@given(st.lists(st.one_of(FINITE, st.floats(width=32, allow_nan=False, allow_infinity=False))))
def test_a_number_takes_32_bits_where_that_is_exact_and_64_otherwise(numbers: list[float]) -> None:
    packed = floats(np.array(numbers, np.float64))
    assert msgpack.unpackb(packed) == numbers
    sizes = [5 if _is_short(number) else 9 for number in numbers]
    assert len(packed) == len(array_head(len(numbers))) + sum(sizes)


def _is_short(number: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", number))[0] == number)
    except OverflowError:
        return False


@given(st.lists(st.floats(width=16, allow_nan=False, allow_infinity=False)))
def test_stored_vectors_are_written_unchanged(numbers: list[float]) -> None:
    assert floats(np.array(numbers, "<f2")) == msgpack.packb(numbers, use_single_float=True)


def test_msgpack_heads_are_as_short_as_possible() -> None:
    for length in (0, 15, 16, 31, 32, 255, 256, 65_535, 65_536):
        assert msgpack.packb("x" * length).startswith(text_head(length))
        assert msgpack.packb([0] * length).startswith(array_head(length))
        content = "x" * length
        assert blob_head("an id", length) + content.encode() == msgpack.packb(["lb", {"i": "an id", "d": content}])


@given(st.lists(st.tuples(st.binary(), st.binary())))
def test_joined_pairs_sort_like_the_pairs(pairs: list[tuple[bytes, bytes]]) -> None:
    joined = [in_order(first) + second for first, second in pairs]
    assert [cut(encoded) for encoded in joined] == pairs
    assert [cut(encoded) for encoded in sorted(joined)] == sorted(pairs)


@given(st.lists(st.tuples(st.text(), st.binary())))
def test_items_are_grouped_by_source_without_duplicates(items: list[tuple[str, bytes]]) -> None:
    with BySource() as file:
        for source, item in items:
            file.add(source.encode(), item)
        found = [(source, list(members)) for source, members in file.groups()]
    assert [source for source, _ in found] == sorted({source for source, _ in items}, key=str.encode)
    assert [(source, item) for source, members in found for item in members] == sorted(
        set(items), key=lambda pair: (pair[0].encode(), pair[1])
    )


@given(st.sets(st.uuids()), st.lists(st.uuids()))
def test_a_set_of_ids_knows_its_own_and_no_others(own: set[UUID], others: list[UUID]) -> None:
    ids = IdSet()
    for id_ in sorted(own):
        ids.add(id_)
    assert all(id_ in ids for id_ in own)
    assert not any(id_ in ids for id_ in others if id_ not in own)
    asked = [*others, *own]
    assert ids.among(b"".join(id_.bytes for id_ in asked)) == b"".join(id_.bytes for id_ in asked if id_ in own)


def test_ids_that_end_in_zeros_are_distinguished() -> None:
    ids = IdSet()
    ids.add(UUID(int=1 << 64))
    assert UUID(int=1 << 64) in ids
    assert UUID(int=1 << 72) not in ids
    assert UUID(int=0) not in ids

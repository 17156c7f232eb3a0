"""A full core that is damaged or contradicts itself is refused. A core is never stored in part."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_formats.cores import CoreModel, CoreRoot, InvalidCore
from drillcore_formats.cores.format import WrongShape
from drillcore_formats.cores.parts import PART_KIND, ROOT_KIND
from drillcore_server.cores.imports.check_core import CheckedCore, check_core
from drillcore_server.facts.model import fact_hash
from drillcore_server.facts.store import FACT
from drillcore_server.graphs.turn_store import TURN
from drillcore_server.hierarchy.model import raw_id
from drillcore_server.hierarchy.packed import _CHUNK, SECTION
from drillcore_server.hierarchy.store import DOCUMENT, MASTER, SOURCE
from drillcore_server.signatures.store import SIGNATURE
from drillcore_server.storage.ids import NodeId, Span
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed_file import PIECE_BYTES, SealedFile
from tests.support.paths import GOLDEN_FILES

GOLDEN = (GOLDEN_FILES / "small.core").read_bytes()
"""A full core with some of everything except communities."""
Entry = list[Any]
Edit = Callable[[list[Entry]], None]


def check(data: bytes, *, strict: bool = False) -> CheckedCore:
    """Checks a core. Raises `InvalidCore` if it is refused."""
    with SealedFile() as file:
        file.write(data)
        with check_core(file, strict=strict, progress=lambda *_: None) as core:
            return core


def records() -> list[Entry]:
    return list(msgpack.Unpacker(io.BytesIO(GOLDEN), raw=False))


def packed(some: list[Entry]) -> bytes:
    return b"".join(msgpack.packb(entry, use_bin_type=True) for entry in some)


def with_parts(edit: Edit) -> bytes:
    """The core with the records of its parts changed by `edit`, part by part."""
    found = records()
    for described, content in pairwise(found):
        if described[0] == "lm" and described[1]["k"] == PART_KIND:
            stream = msgpack.Unpacker(io.BytesIO(base64.b64decode(content[1]["d"])), raw=False)
            arrays = list(stream)
            edit(arrays)
            content[1]["d"] = base64.b64encode(packed(arrays)).decode()
    return packed(found)


def changed(kind: str, how: Callable[[Entry], None], nth: int = 0) -> bytes:
    """The core with a single record of a kind changed."""
    left = [nth]

    def edit(arrays: list[Entry]) -> None:
        for entry in arrays:
            if entry[0] == kind:
                if left[0] == 0:
                    how(entry)
                left[0] -= 1

    found = with_parts(edit)
    assert left[0] < 0, f"there is no {kind}"
    return found


def field(kind: RecordKind[Any], place: int = 1, **values: Any) -> Callable[[Entry], None]:
    """Sets fields of a record to other values."""

    def change(entry: Entry) -> None:
        entry[place] = kind.encode(replace(kind.decode(entry[place]), **values))

    return change


def item(place: int, value: Any) -> Callable[[Entry], None]:
    return lambda entry: entry.__setitem__(place, value)


def chunk(**values: Any) -> Callable[[Entry], None]:
    """As `field`, for chunks, which are encoded differently."""
    return field(_CHUNK, 3, **values)


def without(kind: str) -> bytes:
    return with_parts(lambda arrays: arrays.__setitem__(slice(None), [entry for entry in arrays if entry[0] != kind]))


def of_kind(kind: str) -> list[Entry]:
    found: list[Entry] = []
    with_parts(lambda arrays: found.extend(entry for entry in arrays if entry[0] == kind))
    return found


def first_of_all(kind: str) -> Edit:
    """An edit that puts the records of a kind before those of the first document."""
    moved = of_kind(kind)
    left = [True]

    def edit(arrays: list[Entry]) -> None:
        arrays[:] = [entry for entry in arrays if entry[0] != kind]
        if left[0]:
            arrays[:0] = moved
            left[0] = False

    return edit


OTHER = uuid4()
FACTS = [FACT.decode(entry[1]) for entry in of_kind("fact")]
DOCUMENTS = [DOCUMENT.decode(entry[1]) for entry in of_kind("document")]
RAW = raw_id(NodeId(UUID(bytes=of_kind("chunk")[0][1])), 7)
LIVE = next(place for place, fact in enumerate(FACTS) if fact.document is not None and fact.status == 1)

CONTRADICTIONS: dict[str, Callable[[], bytes]] = {
    "no end": lambda: without("end"),
    "something behind the end": lambda: with_parts(lambda a: a.append(a[-1]) if a[-1][0] == "end" else None),
    "an end that counts wrongly": lambda: changed("end", lambda entry: entry[1].update(fact=77)),
    "an end that is no count": lambda: changed("end", item(1, "all")),
    "a kind that nobody knows": lambda: changed("end", item(0, "something")),
    "no document": lambda: without("document"),
    "no section": lambda: without("section"),
    "no master": lambda: without("master"),
    "no sources": lambda: without("source"),
    "no facts": lambda: without("fact"),
    "no chunks": lambda: without("chunk"),
    "no turns for the edges, or their count": lambda: without("turn"),
    "a document of another hash": lambda: changed("document", field(DOCUMENT, content_hash="0" * 64)),
    "a document of another length": lambda: changed("document", field(DOCUMENT, characters=7)),
    "a document with other chunks": lambda: changed("document", field(DOCUMENT, chunks=(OTHER,))),
    "a document with other raws": lambda: changed("document", field(DOCUMENT, raws=77)),
    "a document of another source": lambda: changed("document", field(DOCUMENT, source="another")),
    "a document of another id": lambda: changed("document", field(DOCUMENT, id=OTHER)),
    "a document that is no bytes": lambda: changed("document", item(1, "text")),
    "a document that is no document": lambda: changed("document", item(1, b"\x90")),
    "a document with a field too many": lambda: changed("document", lambda entry: entry.append(1)),
    "a chunk of another id": lambda: changed("chunk", item(1, OTHER.bytes)),
    "a chunk of another section": lambda: changed("chunk", item(2, OTHER.bytes)),
    "a chunk of no section": lambda: changed("chunk", item(2, b"short")),
    "a chunk without a vector": lambda: changed("chunk", item(4, None)),
    "a chunk with a short vector": lambda: changed("chunk", item(4, b"\0\0")),
    "a chunk with a vector of no numbers": lambda: changed(
        "chunk", lambda entry: item(4, b"\xff" * len(entry[4]))(entry)
    ),
    "a chunk with a vector of zeros": lambda: changed("chunk", lambda entry: item(4, bytes(len(entry[4])))(entry)),
    "a chunk of another document": lambda: changed("chunk", chunk(document=OTHER)),
    "a chunk in another place": lambda: changed("chunk", chunk(ordinal=7)),
    "a chunk that begins elsewhere": lambda: changed("chunk", chunk(start=1)),
    "a chunk with other raws": lambda: changed("chunk", chunk(raw_lengths=(1, 1))),
    "a chunk that quotes what is not there": lambda: changed("chunk", chunk(quotes=(99,))),
    "a chunk with another text": lambda: changed("chunk", chunk(text="something else")),
    "a chunk of version 0": lambda: changed("chunk", chunk(version=0)),
    "a section with other counts": lambda: changed("section", field(SECTION, chunks=77)),
    "a section that hides a source": lambda: changed("section", field(SECTION, sources=())),
    "a section without a sum": lambda: changed("section", field(SECTION, vector_sum=b"")),
    "a section that cites another chunk": lambda: changed(
        "section",
        lambda entry: field(
            SECTION, candidates=tuple(replace(c, chunk=OTHER) for c in SECTION.decode(entry[1]).candidates)
        )(entry),
    ),
    "a section that cites what is not said": lambda: changed(
        "section",
        lambda entry: field(
            SECTION, candidates=tuple(replace(c, span=Span(0, 99_999)) for c in SECTION.decode(entry[1]).candidates)
        )(entry),
    ),
    "a master that counts wrongly": lambda: changed(
        "master",
        lambda entry: field(MASTER, statistics=replace(MASTER.decode(entry[1]).statistics, chunks=7))(entry),
    ),
    "a second master": lambda: with_parts(
        lambda arrays: (
            arrays[:0] if not arrays else arrays.extend(entry for entry in list(arrays) if entry[0] == "master")
        )
    ),
    "a source that counts wrongly": lambda: changed("source", field(SOURCE, fact_count=77)),
    "a source that leads elsewhere": lambda: changed("source", field(SOURCE, document=OTHER)),
    "a source without an id": lambda: changed("source", field(SOURCE, id="")),
    "a fact with another content": lambda: changed("fact", field(FACT, content="Something else is said here.")),
    "a fact with another hash": lambda: changed("fact", field(FACT, content_hash="0" * 64)),
    "a fact of another source": lambda: changed("fact", field(FACT, source="another")),
    "a fact of another id": lambda: changed("fact", field(FACT, id=OTHER)),
    "a fact of an unknown status": lambda: changed(
        "fact", lambda entry: item(1, entry[1].replace(b"\x01", b"\x09", 1) + b"")(entry)
    ),
    "a fact of another chunk": lambda: changed("fact", field(FACT, chunk=OTHER), LIVE),
    "a fact that its chunk does not hold": lambda: changed("fact", field(FACT, span=Span(0, 99_999)), LIVE),
    "a fact that is too important": lambda: changed("fact", field(FACT, importance=1.5)),
    "a fact of no importance at all": lambda: changed("fact", field(FACT, importance=float("nan"))),
    "a fact that lives for a word": lambda: changed("fact", field(FACT, ttl="for ever")),
    "a fact of ten thousand tokens": lambda: changed("fact", field(FACT, tokens=10_000)),
    "a fact that is deleted and has a vector": lambda: changed("fact", field(FACT, status=3), LIVE),
    "facts in another order": lambda: with_parts(
        lambda arrays: arrays.reverse() if arrays[0][0] != "document" else None
    ),
    "a turn with a salience of 2": lambda: changed("turn", field(TURN, 2, salience=2.0)),
    "a turn of another source": lambda: changed("turn", item(1, "another")),
    "a library document's source that is not there": lambda: changed("library", item(2, "nobody")),
    "a library document that is not there": lambda: changed("library", item(1, "nobody")),
    "an embedding of no numbers": lambda: changed("embedding", item(3, ["x"])),
    "an embedding with a NaN": lambda: changed("embedding", item(3, [float("nan")])),
    "a signature of no version": lambda: changed(
        "signature", lambda entry: field(SIGNATURE, target=replace(SIGNATURE.decode(entry[1]).target, version=0))(entry)
    ),
    "a signature of a node that is not there": lambda: changed(
        "signature", lambda entry: field(SIGNATURE, target=replace(SIGNATURE.decode(entry[1]).target, id=OTHER))(entry)
    ),
    "a signature of a raw that its chunk does not have": lambda: changed(
        "signature", lambda entry: field(SIGNATURE, target=replace(SIGNATURE.decode(entry[1]).target, id=RAW))(entry)
    ),
    "a signature that names keys": lambda: changed("signature", field(SIGNATURE, sealed_by=(1,))),
    "facts before documents": lambda: with_parts(first_of_all("fact")),
    "sources before documents": lambda: with_parts(first_of_all("source")),
    "a master before its sections": lambda: with_parts(
        lambda arrays: arrays.sort(key=lambda entry: entry[0] != "master") if arrays[0][0] == "section" else None
    ),
    "a turn with the id of a raw": lambda: with_parts(
        lambda arrays: [field(TURN, 2, id=RAW)(entry) for entry in arrays if entry[0] == "turn"] and None
    ),
    "a fact that is longer than its tokens can be": lambda: changed(
        "fact", field(FACT, content="x" * 5_000, content_hash=fact_hash("x" * 5_000), tokens=10)
    ),
    "a library document of a source with too long an id": lambda: changed("library", item(2, "s" * 1_001)),
    "a signature that is none": lambda: changed("signature", item(1, b"\xc0")),
}


def test_the_unchanged_core_is_accepted() -> None:
    core = check(GOLDEN, strict=True)
    assert core.full is not None
    assert check(with_parts(lambda _: None), strict=True).full is not None, (
        "a core that was taken apart and put together again is accepted too"
    )


@pytest.mark.parametrize("cut", [1, len(ROOT_KIND) // 2, len(ROOT_KIND) - 1])
def test_a_root_is_found_across_two_pieces_of_the_file(cut: int) -> None:
    begin = GOLDEN.index(ROOT_KIND.encode())
    filler = ["?", b""]
    filler[1] = bytes(PIECE_BYTES - begin - cut - len(msgpack.packb(["?", bytes(70_000)])) + 70_000)
    data = msgpack.packb(filler) + GOLDEN
    assert data.index(ROOT_KIND.encode()) == PIECE_BYTES - cut
    assert check(data).full is not None


@pytest.mark.parametrize("model", [("x", 0), ("x", True), ("x", 1 << 40), ("", 3), ("x" * 1_001, 3)])
def test_a_root_with_an_impossible_model_is_refused(model: tuple[str, int]) -> None:
    with pytest.raises(WrongShape):
        CoreRoot.parse(CoreRoot(True, CoreModel(*model)).encode())


@pytest.mark.parametrize("made", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_core_that_contradicts_itself_is_refused(made: Callable[[], bytes]) -> None:
    data = made()
    assert data != packed(records())
    with pytest.raises(InvalidCore) as caught:
        check(data)
    assert caught.value.record > 0
    assert 0 < caught.value.offset_bytes <= len(data)


def texts_changed() -> Iterator[tuple[str, bytes]]:
    """Cores with a changed text of a document or a chunk, which its records do not match."""
    for place, entry in enumerate(records()):
        if entry[0] == "lb" and entry[1]["i"].startswith(("urn:drillcore:document:", "urn:drillcore:chunk:")):
            found = records()
            text = bytearray(base64.b64decode(entry[1]["d"]))
            text[3:4] = b"#"
            found[place][1]["d"] = base64.b64encode(text).decode()
            yield entry[1]["i"], packed(found)


def test_a_changed_text_is_detected() -> None:
    cases = dict(texts_changed())
    assert len(cases) == 4
    for data in cases.values():
        with pytest.raises(InvalidCore):
            check(data)


def test_a_missing_or_foreign_vector_of_a_fact_is_detected() -> None:
    for edit in (
        lambda entities: entities.pop(),
        lambda entities: entities.append(entities[0]),
        lambda entities: entities[0]["v"].pop(),
        lambda entities: entities[0]["v"].__setitem__(0, 0.1),
        lambda entities: entities[0].update(v=[0.0] * len(entities[0]["v"])),
        lambda entities: entities[0]["e"].update(i=f"urn:drillcore:fact:{OTHER}"),
        lambda entities: entities[0]["e"].update(i="urn:x:something"),
    ):
        found = records()
        listed = next(entry for entry in found if entry[0] == "ge" and "s" not in entry[1]["m"])
        edit(listed[1]["e"])
        with pytest.raises(InvalidCore):
            check(packed(found))


def test_a_root_that_contradicts_the_core_is_refused() -> None:
    for said in (b"{}", b"no json", b'{"format":"drillcore-core","version":2,"sources":true,"model":null}', b""):
        found = records()
        place = next(at for at, entry in enumerate(found) if entry[0] == "lm" and entry[1]["k"] == ROOT_KIND)
        found[place + 1][1]["d"] = base64.b64encode(said).decode()
        with pytest.raises(InvalidCore):
            check(packed(found))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(GOLDEN) - 1))
def test_a_full_core_that_is_cut_off_anywhere_is_refused(end: int) -> None:
    try:
        core = check(GOLDEN[:end])
    except InvalidCore:
        return
    assert core.full is None, "before its root a full core looks like a core of quads"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOLDEN) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_full_core_with_changed_bytes_is_refused_or_whole(flips: list[tuple[int, int]]) -> None:
    data = bytearray(GOLDEN)
    for at, value in flips:
        data[at] = value
    with suppress(InvalidCore):
        check(bytes(data))


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_a_full_core_with_moved_records_is_refused_or_whole(random: Any, swaps: int) -> None:
    found = records()
    for _ in range(swaps):
        first, second = random.randrange(len(found)), random.randrange(len(found))
        found[first], found[second] = found[second], found[first]
    with suppress(InvalidCore):
        check(packed(found))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_full_core_with_a_changed_field_is_refused_or_whole(data: st.DataObject) -> None:
    """A record of any kind, changed at any place to any value."""
    kinds = sorted({entry[0] for entry in of_kind_any()})
    kind = data.draw(st.sampled_from(kinds))
    anything = st.one_of(
        st.none(), st.booleans(), st.integers(-5, 300), st.floats(), st.text(max_size=5), st.binary(max_size=20)
    )

    def change(entry: Entry) -> None:
        place = data.draw(st.integers(1, len(entry) - 1))
        inside = _inside(entry[place]) if data.draw(st.booleans()) else None
        if inside:
            inside[data.draw(st.integers(0, len(inside) - 1))] = data.draw(anything)
        entry[place] = msgpack.packb(inside, use_bin_type=True) if inside else data.draw(anything)

    with suppress(InvalidCore):
        check(changed(kind, change))


def _inside(value: object) -> list[Any] | None:
    """The fields of an encoded record, or None."""
    try:
        found = msgpack.unpackb(value, raw=False) if isinstance(value, bytes) else None
    except ValueError:
        return None
    return found if isinstance(found, list) else None


def of_kind_any() -> list[Entry]:
    found: list[Entry] = []
    with_parts(found.extend)
    return found

"""Cores of TrustGraph's own tools are imported unchanged, as one revision of a corpus, or not at all."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import grpc
import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drillcore_formats.quads import Blank, Iri, Literal, Quoted
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_server.cores.model import VectorKind
from drillcore_server.graphs.quad_model import Quad
from tests.support.callers.cores import (
    CORE_ID,
    KNOWS,
    CoreCaller,
    blob,
    check_store,
    embedded_chunks,
    entities,
    foreign_records,
    handbook,
    iri,
    library_document,
    record,
    text,
    triple,
    triples,
)
from tests.support.callers.erasures import ErasingCaller
from tests.support.callers.knowledge import Caller, info_of, refused
from tests.support.fixtures import new_corpus
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, OPERATOR, Running
from tests.support.stores.trails import records

ANN, BOB = Iri("http://example.org/ann"), Iri("http://example.org/bob")
HANDBOOK_QUADS = {
    Quad(ANN, Iri(KNOWS), BOB),
    Quad(ANN, Iri("http://example.org/name"), Literal("Ann", language="en"), "urn:graph:people"),
    Quad(Blank("b0"), Iri("http://example.org/age"), Literal("44", "http://www.w3.org/2001/XMLSchema#integer")),
    Quad(Quoted(ANN, Iri(KNOWS), BOB), Iri("http://example.org/source"), Literal("a letter"), "urn:graph:source"),
}
SOURCE = f"core:{CORE_ID}"
A_TRIPLE = triple(iri("urn:a"), iri("urn:b"), iri("urn:c"))


@pytest.fixture(scope="session")
def cores(shared: Running) -> Iterator[CoreCaller]:
    caller = CoreCaller(shared.address, OPERATOR, ACME_ID)
    yield caller
    caller.close()


def head(library: Caller, corpus: str) -> int:
    return library.head(corpus)


def test_records_that_trustgraph_writes_are_kept_unchanged(
    cores: CoreCaller, library: Caller, corpus: str, shared: Running
) -> None:
    answers = cores.send(corpus, handbook(), strict=True)
    assert answers.done == pb.ImportCoreDone(
        revision=1,
        kind=pb.CORE_KIND_PLAIN,
        counts=pb.CoreCounts(records=7, quads=4, entity_vectors=2, library_documents=2, sources=1),
    )
    assert cores.quads_of(corpus) == dict.fromkeys(HANDBOOK_QUADS, (SOURCE,))
    found = foreign_records(shared, corpus)
    assert found.vectors == [
        (VectorKind.GRAPH, ANN.value, (0.25, 0.5, -1.0)),
        (VectorKind.GRAPH, BOB.value, (0.1, 0.2, 0.3)),
    ]
    assert found.contents == {"urn:doc:1": b"The whole handbook.", "urn:doc:1/p1": "Über Seite eins.".encode()}
    document = found.documents["urn:doc:1"]
    assert (document.title, document.tags, document.comments) == ("about urn:doc:1", ("hr", "2026"), "as printed")
    assert found.documents["urn:doc:1/p1"].parent == "urn:doc:1"
    assert head(library, corpus) == 1
    check_store(shared)


def test_the_audit_record_describes_the_imported_core(cores: CoreCaller, corpus: str, shared: Running) -> None:
    cores.send(corpus, handbook(), request_id=f"import {corpus}")
    (found,) = records(shared, request_id=f"import {corpus}")
    assert found["call"] == "ImportCore"
    assert found["detail"]["kind"] == "plain"
    assert found["detail"]["counts"]["quads"] == 4
    assert len(found["detail"]["core_sha256"]) == 64


def test_a_file_of_trustgraph_1_is_read(cores: CoreCaller, corpus: str, shared: Running) -> None:
    def old(value: str, *, is_iri: bool) -> dict[str, object]:
        return {"v": value, "e": is_iri}

    about = {"s": old("urn:core:old", is_iri=True), "p": old("urn:title", is_iri=True), "o": old("Old", is_iri=False)}
    said = {"s": old("urn:a", is_iri=True), "p": old("urn:b", is_iri=True), "o": old("c", is_iri=False)}
    meta = {"i": "urn:core:old", "m": [about], "u": "user", "c": "default"}
    vectors = [{"e": old("urn:a", is_iri=True), "v": [[1.0, 2.0], [3.0, 4.0]]}]
    answers = cores.send(corpus, record("t", {"m": meta, "t": [said]}) + record("ge", {"m": meta, "e": vectors}))
    assert answers.skipped == []
    assert cores.quads_of(corpus).keys() == {
        Quad(Iri("urn:core:old"), Iri("urn:title"), Literal("Old")),
        Quad(Iri("urn:a"), Iri("urn:b"), Literal("c")),
    }
    assert [vector for _, _, vector in foreign_records(shared, corpus).vectors] == [(1.0, 2.0), (3.0, 4.0)]


def test_records_without_a_root_a_graph_or_any_content_are_read(cores: CoreCaller, corpus: str) -> None:
    bare = record("t", {"m": {"i": "urn:x"}, "t": [A_TRIPLE]}) + record("t", {}) + record("ge", {"m": None, "e": []})
    answers = cores.send(corpus, bare, strict=True)
    assert (answers.done.counts.quads, answers.done.counts.records) == (1, 3)
    assert list(cores.quads_of(corpus).values()) == [("core:urn:x",)]


def test_document_embeddings_are_kept(cores: CoreCaller, corpus: str, shared: Running) -> None:
    answers = cores.send(corpus, embedded_chunks({"urn:doc:1/c1": [1.0, 2.0], "urn:doc:1/c2": [0.1, 0.2]}))
    assert answers.done.kind == pb.CORE_KIND_DOCUMENT_EMBEDDINGS
    assert foreign_records(shared, corpus).vectors == [
        (VectorKind.DOCUMENT, "urn:doc:1/c1", (1.0, 2.0)),
        (VectorKind.DOCUMENT, "urn:doc:1/c2", (0.1, 0.2)),
    ]


def test_parts_may_precede_their_wholes_and_contents_their_descriptions(
    cores: CoreCaller, corpus: str, shared: Running
) -> None:
    child = library_document("urn:child", b"below", **{"parent-id": "urn:parent"})
    answers = cores.send(corpus, blob("urn:parent", b"above") + child + library_document("urn:parent"), strict=True)
    assert answers.done.counts.library_documents == 2
    assert foreign_records(shared, corpus).contents == {"urn:child": b"below", "urn:parent": b"above"}


def test_a_large_document_is_kept_in_pieces(cores: CoreCaller, corpus: str, shared: Running) -> None:
    content = bytes(range(256)) * 2_000
    cores.send(corpus, library_document("urn:large", content))
    assert foreign_records(shared, corpus).contents == {"urn:large": content}
    check_store(shared)


SKIPPED: dict[str, tuple[bytes, str]] = {
    "a tag nobody knows": (record("xx", {"any": "thing"}), "UNKNOWN_TAG"),
    "content that nothing describes": (blob("urn:nobody", b"lost"), "BLOB_WITHOUT_METADATA"),
    "the same description twice": (library_document("urn:d") * 2, "DUPLICATE"),
    "the same content twice": (library_document("urn:d", b"x") + blob("urn:d", b"x"), "DUPLICATE"),
    "a vector of another dimension": (entities({"urn:a": [1.0, 2.0], "urn:b": [1.0]}), "OTHER_DIMENSION"),
    "an entity without a vector": (record("ge", {"m": {}, "e": [{"e": iri("urn:a"), "v": []}]}), "OTHER_DIMENSION"),
    "an IRI that is none": (triples(triple(iri("not an iri"), iri("urn:b"), iri("urn:c"))), "INVALID_TERM"),
    "a literal as a subject": (triples(triple(text("x"), iri("urn:b"), iri("urn:c"))), "INVALID_TERM"),
    "a term of an unknown kind": (triples(triple({"t": "?"}, iri("urn:b"), iri("urn:c"))), "INVALID_TERM"),
    "a graph that is no IRI": (triples(triple(iri("urn:a"), iri("urn:b"), iri("urn:c"), "no graph")), "INVALID_TERM"),
    "a triple without an object": (triples({"s": iri("urn:a"), "p": iri("urn:b")}), "INVALID_TERM"),
}


@pytest.mark.parametrize(("data", "reason"), SKIPPED.values(), ids=SKIPPED.keys())
def test_useless_records_are_skipped_and_reported(cores: CoreCaller, corpus: str, data: bytes, reason: str) -> None:
    before = triples(A_TRIPLE)
    answers = cores.send(corpus, before + data)
    assert answers.skipped == [reason]
    assert answers.done.skipped_count == 1
    (skipped,) = answers.done.skipped
    assert skipped.offset_bytes >= len(before)
    assert skipped.record >= 2
    assert cores.quads_of(corpus).keys() == {Quad(Iri("urn:a"), Iri("urn:b"), Iri("urn:c"))}


@pytest.mark.parametrize(("data", "reason"), SKIPPED.values(), ids=SKIPPED.keys())
def test_a_strict_import_refuses_what_it_would_skip(
    cores: CoreCaller, library: Caller, corpus: str, data: bytes, reason: str
) -> None:
    with refused(Reason.INVALID_CORE):
        cores.send(corpus, triples(A_TRIPLE) + data, strict=True)
    assert head(library, corpus) == 0


def nested(depth: int) -> bytes:
    return b"\x92\xa1t" + b"\x91" * depth + b"\x90"


WRONG: dict[str, bytes] = {
    "no msgpack": b"\xc1\xc1\xc1",
    "text": b"this is no core",
    "an array of three": msgpack.packb(["t", {}, {}]),
    "a map": msgpack.packb({"t": {}}),
    "a tag that is no text": msgpack.packb([7, {}]),
    "a payload that is no map": record("t", [A_TRIPLE]),
    "triples that are no list": record("t", {"m": {}, "t": {"s": 1}}),
    "a triple that is no map": record("t", {"m": {}, "t": ["triple"]}),
    "a term that is no map": triples({"s": "urn:a", "p": iri("urn:b"), "o": iri("urn:c")}),
    "an IRI that is a number": triples(triple({"t": "i", "i": 7}, iri("urn:b"), iri("urn:c"))),
    "a vector of texts": record("ge", {"m": {}, "e": [{"e": iri("urn:a"), "v": ["1.0"]}]}),
    "a vector with a NaN": entities({"urn:a": [1.0, float("nan")]}),
    "a vector that does not end": entities({"urn:a": [1.0, float("inf")]}),
    "a vector of numbers that are too large": record("ge", {"m": {}, "e": [{"e": iri("urn:a"), "v": [2**63]}]})[:-1],
    "no base64": record("lb", {"i": "urn:d", "d": "no base 64!"}),
    "base64 that is cut off": record("lb", {"i": "urn:d", "d": "QUJDRA="}),
    "content that is no text": record("lb", {"i": "urn:d", "d": ["QUJD"]}),
    "content of nothing": record("lb", {"d": "QUJD"}),
    "a description without an id": record("lm", {"k": "text/plain"}),
    "tags that are no list": record("lm", {"i": "urn:d", "g": "tag"}),
    "the same id with other words": library_document("urn:d") + library_document("urn:d", comments="another"),
    "the same id with other content": library_document("urn:d", b"x") + blob("urn:d", b"y"),
    "a part of itself": library_document("urn:a", **{"parent-id": "urn:b"})
    + library_document("urn:b", **{"parent-id": "urn:a"}),
    "nested very deeply": nested(100_000),
    "a text that claims to be huge": b"\x92\xa1t\xdb\xff\xff\xff\xff",
    "an array that claims to be huge": b"\x92\xa1t\xdd\xff\xff\xff\xff",
    "text that is not UTF-8": b"\x92\xa2lm\x81\xa1i\xa2\xff\xfe",
    "a record over the limit": record("t", {"m": {}, "x": b"0" * (65 << 20)}),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG.keys())
def test_a_file_that_is_no_core_is_refused_as_a_whole(
    cores: CoreCaller, library: Caller, corpus: str, data: bytes
) -> None:
    with refused(Reason.INVALID_CORE):
        cores.send(corpus, triples(A_TRIPLE) + data, piece_bytes=1 << 20)
    assert head(library, corpus) == 0
    assert cores.quads_of(corpus) == {}


def test_a_refusal_names_the_record_and_its_byte(cores: CoreCaller, corpus: str) -> None:
    before = triples(A_TRIPLE)
    with pytest.raises(Exception, match=f"record 2 at byte {len(before)}: ") as caught:
        cores.send(corpus, before + record("t", 7))
    assert "nothing was stored" in str(caught.value)


def test_an_empty_file_is_an_empty_core(cores: CoreCaller, library: Caller, corpus: str) -> None:
    answers = cores.send(corpus, b"")
    assert answers.done == pb.ImportCoreDone(kind=pb.CORE_KIND_PLAIN, counts=pb.CoreCounts())
    assert head(library, corpus) == 0


def test_blobs_may_be_bytes_as_well_as_text(cores: CoreCaller, corpus: str, shared: Running) -> None:
    content = record("lb", {"i": "urn:d", "d": base64.b64encode(b"as bytes")})
    cores.send(corpus, library_document("urn:d") + content, strict=True)
    assert foreign_records(shared, corpus).contents == {"urn:d": b"as bytes"}


def test_a_core_that_is_imported_again_changes_nothing(
    cores: CoreCaller, library: Caller, corpus: str, shared: Running
) -> None:
    cores.send(corpus, handbook())
    again = cores.send(corpus, handbook())
    assert (again.done.revision, again.done.counts) == (1, pb.CoreCounts(records=7))
    assert head(library, corpus) == 1
    check_store(shared)


def test_a_newer_core_of_the_same_source_replaces_its_documents_and_adds_the_rest(
    cores: CoreCaller, corpus: str, shared: Running
) -> None:
    cores.send(corpus, library_document("urn:d", b"long " * 100_000) + triples(A_TRIPLE), source_id="s")
    second = cores.send(corpus, library_document("urn:d", b"short") + handbook(), source_id="s")
    assert second.done.counts.library_documents == 3
    assert foreign_records(shared, corpus).contents["urn:d"] == b"short"
    assert len(cores.quads_of(corpus)) == 5
    check_store(shared)


def test_a_core_does_not_take_over_a_document_of_another_core(
    cores: CoreCaller, library: Caller, corpus: str, shared: Running
) -> None:
    cores.send(corpus, library_document("urn:d", b"the first"), source_id="one")
    same = cores.send(corpus, library_document("urn:d", b"the first") + triples(A_TRIPLE), source_id="two")
    assert same.skipped == ["DUPLICATE"]
    with refused(Reason.NODE_EXISTS):
        cores.send(corpus, library_document("urn:d", b"another"), source_id="two")
    assert foreign_records(shared, corpus).documents["urn:d"].source == "one"
    assert head(library, corpus) == 2


def test_a_repeated_request_gets_its_answer_and_is_not_done_again(
    cores: CoreCaller, library: Caller, corpus: str
) -> None:
    data = handbook() + record("xx", {})
    first = cores.send(corpus, data, request_id=f"once {corpus}")
    again = cores.send(corpus, data, request_id=f"once {corpus}", upload_id="another", piece_bytes=7)
    assert again.done == first.done
    assert head(library, corpus) == 1
    with refused(Reason.REQUEST_ID_REUSED):
        cores.send(corpus, triples(A_TRIPLE), request_id=f"once {corpus}")


def test_an_upload_that_broke_off_continues_where_it_stopped(cores: CoreCaller, library: Caller, corpus: str) -> None:
    data = handbook() * 3
    with refused(Reason.CANCELLED):
        cores.send(corpus, data, stop_at=1_000, upload_id="one")
    assert head(library, corpus) == 0
    resumed = cores.send(corpus, data, upload_id="one")
    assert resumed.offset == 1_000
    assert cores.quads_of(corpus).keys() == HANDBOOK_QUADS


def test_an_upload_continues_only_for_its_own_caller_and_corpus(
    cores: CoreCaller, corpus: str, shared: Running
) -> None:
    data = handbook()
    with refused(Reason.CANCELLED):
        cores.send(corpus, data, stop_at=500, upload_id="one")
    assert cores.send(new_corpus(shared), data, upload_id="one").offset == 0
    second_caller = CoreCaller(shared.address, ACME)
    assert second_caller.send(corpus, data, upload_id="one").offset == 0
    second_caller.close()
    assert cores.send(corpus, data, upload_id="one").offset == 500


def test_a_file_that_changed_between_two_uploads_is_refused(cores: CoreCaller, library: Caller, corpus: str) -> None:
    with refused(Reason.CANCELLED):
        cores.send(corpus, handbook(), stop_at=500, upload_id="one")
    with refused(Reason.CORE_CHANGED):
        cores.send(corpus, triples(A_TRIPLE) + handbook(), upload_id="one")
    assert head(library, corpus) == 0
    assert cores.send(corpus, handbook(), upload_id="one").offset == 0


def test_an_end_message_of_another_file_is_refused(cores: CoreCaller, library: Caller, corpus: str) -> None:
    for end in (pb.ImportCoreEnd(size_bytes=7), pb.ImportCoreEnd(size_bytes=len(handbook()), sha256=bytes(32))):
        with refused(Reason.CORE_CHANGED):
            cores.send(corpus, handbook(), end=end)
    assert head(library, corpus) == 0


def test_two_tenants_import_the_same_core(cores: CoreCaller, corpus: str, shared: Running) -> None:
    theirs, globex = new_corpus(shared, GLOBEX), CoreCaller(shared.address, GLOBEX)
    cores.send(corpus, handbook())
    globex.send(theirs, handbook())
    assert cores.quads_of(corpus) == globex.quads_of(theirs)
    with refused(Reason.CORPUS_NOT_FOUND):
        globex.send(corpus, handbook())
    globex.close()


def test_records_of_a_core_are_erased_with_its_source(cores: CoreCaller, corpus: str, shared: Running) -> None:
    cores.send(corpus, handbook() + embedded_chunks({"urn:c": [1.0]}), source_id="to be erased")
    cores.send(corpus, triples(A_TRIPLE) + library_document("urn:other", b"stays"), source_id="stays")
    with ErasingCaller(shared, ACME) as eraser:
        eraser.erase(corpus, "to be erased")
        assert foreign_records(shared, corpus).contents == {"urn:other": b"stays"}
        assert foreign_records(shared, corpus).vectors == []
        assert list(cores.quads_of(corpus).values()) == [("stays",)]
        check_store(shared)
        eraser.purge(corpus)
    check_store(shared)
    assert foreign_records(shared, corpus).contents == {"urn:other": b"stays"}


@pytest.mark.parametrize("order", [sorted, lambda parts: sorted(parts, reverse=True)], ids=["sorted", "reversed"])
def test_records_may_come_in_any_order(
    cores: CoreCaller, corpus: str, shared: Running, order: Callable[[list[bytes]], list[bytes]]
) -> None:
    parts = [*_records(handbook())]
    cores.send(corpus, b"".join(order(parts)), strict=True)
    assert cores.quads_of(corpus).keys() == HANDBOOK_QUADS
    assert len(foreign_records(shared, corpus).contents) == 2


def _records(data: bytes) -> Iterator[bytes]:
    unpacker = msgpack.Unpacker()
    unpacker.feed(data)
    for entry in unpacker:
        yield msgpack.packb(entry, use_bin_type=True)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_refused_or_reported_and_never_stored_in_part(
    cores: CoreCaller, library: Caller, shared: Running, data: st.DataObject
) -> None:
    """The file is cut off anywhere, or has bytes changed anywhere."""
    whole = bytearray(handbook())
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=3)):
            whole[at] = data.draw(st.integers(0, 255))
    corpus = new_corpus(shared)
    try:
        counts = cores.send(corpus, bytes(whole)).done.counts
    except grpc.RpcError as error:
        reason = info_of(error).reason
        counts = None
    if counts is None:
        assert reason == Reason.INVALID_CORE.name
        assert head(library, corpus) == 0
        return
    assert counts.quads == len(cores.quads_of(corpus))
    assert counts.entity_vectors == len(foreign_records(shared, corpus).vectors)
    assert counts.library_documents == len(foreign_records(shared, corpus).documents)

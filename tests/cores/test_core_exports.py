"""Exports of cores: permissions, records, continuation after an interruption, signatures, and erased content."""

from __future__ import annotations

import hashlib
import io
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from unittest import mock
from uuid import UUID, uuid4

import pytest

from drillcore import Grant, Level, Role
from drillcore_fdb.engine import Engine
from drillcore_formats.audit.findings import Mismatch, Untrusted
from drillcore_formats.cores import inspect, verify
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_proto.v1 import facts_pb2, graphs_pb2
from drillcore_server.graphs.turn_store import TURN
from drillcore_server.storage import sealed_file
from drillcore_server.storage.sealed_file import SealedFile
from tests.support.callers.core_exports import (
    QUADS,
    CoreCaller,
    auditor,
    fill,
    foreign,
    iri,
    part_records,
    plant,
    quads_pb2,
    serving,
    text,
    turn,
    verifier,
)
from tests.support.callers.erasures import MARKED, MARKER
from tests.support.callers.knowledge import File, at_revision, refused
from tests.support.data.audit_logs import store_key
from tests.support.servers.running import GLOBEX, Running
from tests.support.servers.signatories import person
from tests.support.stores.hooked_engine import HookedEngine
from tests.support.stores.trails import records

FULL, PLAIN, EMBEDDINGS = pb.CORE_KIND_FULL, pb.CORE_KIND_PLAIN, pb.CORE_KIND_DOCUMENT_EMBEDDINGS
KINDS = (FULL, PLAIN, EMBEDDINGS)


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[tuple[Running, CoreCaller, CoreCaller]]:
    with serving(tmp_path) as (server, writer), auditor(server) as eve:
        yield server, writer, eve


@pytest.fixture
def server(parties: tuple[Running, CoreCaller, CoreCaller]) -> Running:
    return parties[0]


@pytest.fixture
def writer(parties: tuple[Running, CoreCaller, CoreCaller]) -> CoreCaller:
    return parties[1]


@pytest.fixture
def eve(parties: tuple[Running, CoreCaller, CoreCaller]) -> CoreCaller:
    return parties[2]


@pytest.fixture
def corpus(writer: CoreCaller) -> str:
    made = writer.corpus()
    fill(writer, made)
    return made


def test_a_core_matches_its_record_and_verifies_offline(server: Running, eve: CoreCaller, corpus: str) -> None:
    exported = eve.export(corpus, kind=PLAIN, include_sources=False)
    done = exported.done
    assert (done.size_bytes, done.sha256) == (len(exported.data), hashlib.sha256(exported.data).digest())
    (record,) = records(server, call="ExportCore")
    assert (record["id"], record["action"], record["outcome"]) == (done.record_id, "EXPORT", "OK")
    assert record["levels"] == ["chunk", "master", "raw", "section"]
    assert record["corpora"] == {corpus: done.revision}
    counts = {field.name: value for field, value in done.counts.ListFields()}
    assert record["detail"] == {
        "kind": "plain",
        "include_sources": False,
        "include_retrieval": False,
        "revision": done.revision,
        "core_sha256": done.sha256.hex(),
        "size_bytes": done.size_bytes,
        "resumed_at_bytes": 0,
        "counts": counts,
    }
    statement = verify(io.BytesIO(exported.data), done.signature, [verifier(server)]).statement
    assert (statement.corpus, statement.record) == (UUID(corpus), UUID(done.record_id))
    assert (statement.revision, statement.made_at) == (done.revision, record["at"])


def test_a_changed_core_and_one_signed_by_another_key_do_not_verify(
    server: Running, eve: CoreCaller, corpus: str
) -> None:
    exported, keys = eve.export(corpus), [verifier(server)]
    changed = exported.data[:-1] + bytes([exported.data[-1] ^ 1])
    for file in (changed, exported.data[:-1], exported.data + b"\0"):
        with pytest.raises(Mismatch):
            verify(io.BytesIO(file), exported.done.signature, keys)
    with pytest.raises(Untrusted):
        verify(io.BytesIO(exported.data), exported.done.signature, [store_key().verifier])


def test_a_caller_without_the_rights_to_export_and_read_every_level_gets_nothing(
    server: Running, writer: CoreCaller, eve: CoreCaller, corpus: str
) -> None:
    def as_(login: str, *grants: Grant | Role) -> CoreCaller:
        account = person(server, login, *grants)
        return CoreCaller(server, server.client(None).login(account.account.login, account.password).token)

    for kind in KINDS:
        with as_(f"reader-{kind}", Role.READER) as reader, refused(Reason.PERMISSION_DENIED):
            reader.export(corpus, kind=kind)
        upper = Grant(Role.AUDITOR, levels=(Level.MASTER, Level.SECTION, Level.CHUNK))
        with as_(f"upper-{kind}", upper) as some, refused(Reason.PERMISSION_DENIED):
            some.export(corpus, kind=kind)
        elsewhere_only = Grant(Role.AUDITOR, corpus_id=UUID(writer.corpus(f"other {kind}")))
        with as_(f"other-{kind}", elsewhere_only) as elsewhere, refused(Reason.CORPUS_NOT_FOUND):
            elsewhere.export(corpus, kind=kind)
    with CoreCaller(server, GLOBEX) as globex, refused(Reason.CORPUS_NOT_FOUND, Reason.PERMISSION_DENIED):
        globex.export(corpus)
    with refused(Reason.CORPUS_NOT_FOUND):
        eve.export(str(uuid4()))
    assert {body["outcome"] for body in records(server, call="ExportCore")} == {"PERMISSION_DENIED", "CORPUS_NOT_FOUND"}


def test_bad_requests_are_refused(eve: CoreCaller, corpus: str) -> None:
    for field, fields in {
        "kind": {"kind": 9},
        "core_id": {"core_id": "x" * 1_001},
        "resume_sha256": {"resume_at_bytes": 5},
    }.items():
        with refused(Reason.INVALID_ARGUMENT, field=field):
            eve.export(corpus, **fields)
    with refused(Reason.INVALID_ARGUMENT, field="resume_sha256"):
        eve.export(corpus, resume_sha256=bytes(32))
    with refused(Reason.INVALID_ARGUMENT, field="corpus_id"):
        list(eve.cores.ExportCore(iter([]), **eve.options()))
    with refused(Reason.REVISION_NOT_FOUND):
        eve.export(corpus, as_of=at_revision(10_000))


def test_an_export_continues_where_it_was_interrupted(server: Running, eve: CoreCaller, corpus: str) -> None:
    whole = eve.export(corpus)
    for length in (1, 1000, len(whole.data) - 1, len(whole.data)):
        begun = whole.data[:length]
        rest = eve.export(corpus, resume_at_bytes=length, resume_sha256=hashlib.sha256(begun).digest())
        assert begun + rest.data == whole.data
        assert (rest.done.sha256, rest.done.size_bytes) == (whole.done.sha256, whole.done.size_bytes)
        assert verify(io.BytesIO(whole.data), rest.done.signature, [verifier(server)])
    assert [body["detail"]["resumed_at_bytes"] for body in records(server, call="ExportCore")][1:3] == [1, 1000]


def test_an_export_does_not_continue_with_another_core(writer: CoreCaller, eve: CoreCaller, corpus: str) -> None:
    begun = eve.export(corpus).data[:2_000]
    resume = {"resume_at_bytes": len(begun), "resume_sha256": hashlib.sha256(begun).digest()}
    writer.put_quads(corpus, quads_pb2.Quad(subject=iri("urn:a"), predicate=iri("urn:a"), object=iri("urn:a")))
    with refused(Reason.CORE_CHANGED):
        eve.export(corpus, **resume)
    with refused(Reason.CORE_CHANGED):
        eve.export(corpus, resume_at_bytes=1 << 40, resume_sha256=bytes(32))


def test_a_repeated_request_gets_the_same_core_again(
    server: Running, writer: CoreCaller, eve: CoreCaller, corpus: str
) -> None:
    first = eve.export(corpus, request_id="once")
    writer.put_quads(corpus, *QUADS[:1], source="later")
    again = eve.export(corpus, request_id="once")
    assert (again.data, again.done) == (first.data, first.done)
    assert len(records(server, call="ExportCore")) == 1
    with refused(Reason.REQUEST_ID_REUSED):
        eve.export(corpus, request_id="once", kind=PLAIN)
    writer.erase(corpus, "talks")
    with refused(Reason.CORE_CHANGED):
        eve.export(corpus, request_id="once")


def mark(server: Running, writer: CoreCaller, corpus: str) -> None:
    """Puts something of every kind that can be erased, all of a single source."""
    writer.add(corpus, File("marked.md", MARKED, "marked"))
    draft = facts_pb2.FactDraft(
        content=f"Every {MARKER} is reported to the authority within 30 days.", source_id="marked"
    )
    writer.put(corpus, draft)
    quad = quads_pb2.Quad(subject=iri(f"urn:{MARKER}"), predicate=iri("urn:x:says"), object=text(MARKER))
    writer.put_quads(corpus, quad, source="marked")
    kept, gone = turn(0.25), turn(0.5)
    writer.put_turns(corpus, kept)
    reply = graphs_pb2.Edge(parent=kept.turn_id, child=gone.turn_id, edge_type=graphs_pb2.EDGE_TYPE_REPLY)
    writer.put_turns(corpus, gone, edges=[reply], source_id="marked")
    plant(server, corpus, foreign(server, corpus, "marked"))


@pytest.mark.parametrize("kind", KINDS)
def test_erased_content_is_in_no_core_of_any_revision(
    server: Running, writer: CoreCaller, eve: CoreCaller, corpus: str, kind: pb.CoreKind.ValueType
) -> None:
    mark(server, writer, corpus)
    before = eve.export(corpus, kind=kind)
    if kind != EMBEDDINGS:
        assert MARKER.encode() in before.data
    writer.erase(corpus, "marked")
    head = eve.head(corpus)
    for revision in range(1, head + 1):
        # A hierarchy that is no longer whole has no full core: see `test_erased_cores`.
        is_whole = revision == head or kind != FULL
        core = eve.export(corpus, kind=kind, as_of=at_revision(revision), include_sources=is_whole).data
        assert MARKER.encode() not in core.lower()
        for spoken in (b"marked", b"page/1", b"chunk-7"):
            assert spoken not in core
        if kind == FULL:
            said = repr(part_records(core)).lower()
            assert MARKER not in said
            assert "marked" not in said
            check_references(core)


def check_references(core: bytes) -> None:
    """Asserts that a full core has every node that its turns refer to by id."""
    parts = part_records(core)
    turns = {TURN.decode(part[2]).id for part in parts if part[0] == "turn"}
    for kind, *values in parts:
        if kind == "edge":
            assert {UUID(bytes=values[0]), UUID(bytes=values[1])} <= turns
    assert inspect(io.BytesIO(core)).whole


def test_a_core_is_not_sent_if_a_part_is_erased_before_it_is_recorded(tmp_path: Path) -> None:
    engines: list[HookedEngine] = []

    def wrap(engine: Engine) -> HookedEngine:
        engines.append(HookedEngine(engine))
        return engines[0]

    with serving(tmp_path, wrap=wrap) as (server, writer), auditor(server) as eve:
        corpus = writer.corpus()
        writer.add(corpus, File("marked.md", MARKED, "marked"))
        engines[0].hook = lambda: writer.erase(corpus, "marked")
        with refused(Reason.CONFLICT):
            eve.export(corpus)
        assert [body["outcome"] for body in records(server, call="ExportCore")] == ["CONFLICT"]
        assert MARKER.encode() not in eve.export(corpus, kind=PLAIN, as_of=at_revision(1)).data


def test_a_core_is_not_sent_to_its_end_if_a_part_is_erased_meanwhile(
    writer: CoreCaller, eve: CoreCaller, corpus: str
) -> None:
    pieces_from, sent = SealedFile.pieces_from, 0

    def erasing(file: SealedFile, offset: int) -> Iterator[bytes]:
        nonlocal sent
        for number, piece in enumerate(pieces_from(file, offset)):
            yield piece
            sent += 1
            if number == 1:
                writer.erase(corpus, "talks")

    with (
        mock.patch.object(sealed_file, "PIECE_BYTES", 1024),
        mock.patch.object(SealedFile, "pieces_from", erasing),
        refused(Reason.CONFLICT),
    ):
        eve.export(corpus)
    assert sent < 10


def test_memory_stays_bounded_however_large_a_document_is(server: Running, writer: CoreCaller, eve: CoreCaller) -> None:
    corpus = writer.corpus()
    writer.put_quads(corpus, QUADS[0], source="trustgraph")
    large = random.Random(7).randbytes(40 << 20)  # random bytes, which do not compress in the store
    plant_in_turns(server, corpus, large)
    eve.export(writer.corpus("warm"))
    tracemalloc.start()
    try:
        request = pb.ExportCoreRequest(corpus_id=corpus, kind=PLAIN)
        digest, size = hashlib.sha256(), 0
        for answer in eve.cores.ExportCore(iter([request]), **eve.options()):
            digest.update(answer.data)
            size += len(answer.data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size > len(large)
    assert digest.digest() == answer.done.sha256
    assert peak < len(large) // 2, f"{peak:,} bytes for a document of {len(large):,}"


def plant_in_turns(server: Running, corpus: str, large: bytes) -> None:
    writes = foreign(server, corpus, large=large)
    for start in range(0, len(writes), 50):
        plant(server, corpus, writes[start : start + 50])


def test_the_caller_gets_the_progress_of_a_long_export(server: Running, writer: CoreCaller, eve: CoreCaller) -> None:
    corpus = writer.corpus()
    writer.put_quads(corpus, QUADS[0], source="trustgraph")
    plant_in_turns(server, corpus, bytes(9 << 20))
    exported = eve.export(corpus)
    *writing, sending = exported.progress
    assert {message.stage for message in writing} == {"writing"}
    assert [message.bytes for message in writing] == sorted({message.bytes for message in writing})
    assert (sending.stage, sending.bytes) == ("sending", exported.done.size_bytes)

"""A full core moves a corpus to another server, where all answers are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from google.protobuf.message import Message

from drillcore import Role, SignatureTarget, SignatureTargetKind
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import (
    cores_pb2,
    facts_pb2,
    graphs_pb2,
    nodes_pb2,
    signatures_pb2,
    signatures_pb2_grpc,
    sources_pb2,
)
from tests.support.callers.communities import CommunityCaller
from tests.support.callers.core_exports import CoreCaller as Filler
from tests.support.callers.core_exports import fill, serving
from tests.support.callers.cores import CoreCaller, check_store, embedded_chunks, foreign_records, handbook
from tests.support.callers.envelopes import EnvelopeCaller
from tests.support.callers.erasures import ErasingCaller
from tests.support.callers.hierarchies import put, two_sections
from tests.support.callers.knowledge import LEVELS, Caller, File, refused
from tests.support.data.texts import REGULATIONS
from tests.support.fixtures import new_corpus
from tests.support.servers.running import ACME, ACME_ID, DUE_COMMUNITIES, GLOBEX, GLOBEX_ID, OPERATOR, Running
from tests.support.servers.signatories import Person, person

QUESTION = "how long are records kept, and by whom are they inspected"


@dataclass(frozen=True)
class Side:
    """A server and a corpus on it."""

    server: Running
    cores: CoreCaller
    token: str
    corpus: str


@dataclass(frozen=True)
class Moved:
    origin: Side
    core: bytes
    target: Side
    done: cores_pb2.ImportCoreDone


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    """A corpus with some of everything, and its core imported into another tenant of a fresh server."""
    with (
        serving(tmp_path_factory.mktemp("origin")) as (origin, filler),
        serving(tmp_path_factory.mktemp("target"), communities=DUE_COMMUNITIES) as (target, _),
        ExitStack() as stack,
    ):
        there = CoreCaller(origin.address, OPERATOR, ACME_ID)
        here = CoreCaller(target.address, OPERATOR, GLOBEX_ID)
        stack.callback(there.close)
        stack.callback(here.close)
        first = filler.corpus()
        _fill(origin, filler, there, first)
        core = there.export(first).data
        second = new_corpus(target, GLOBEX)
        done = here.send(second, core, strict=True).done
        yield Moved(Side(origin, there, ACME, first), core, Side(target, here, GLOBEX, second), done)


def _fill(server: Running, filler: Filler, cores: CoreCaller, corpus: str) -> None:
    fill(filler, corpus)
    alike = [
        f"Minutes of the board are kept in the archive for {years} years after the meeting." for years in range(7, 12)
    ]
    filler.put(corpus, *(facts_pb2.FactDraft(content=content, source_id="archive") for content in alike))
    facts = [fact.fact_id for fact in filler.list(corpus) if fact.status == facts_pb2.FACT_STATUS_ACTIVE]
    filler.set_status(facts[0], facts_pb2.FACT_STATUS_STALE)
    filler.set_status(facts[1], facts_pb2.FACT_STATUS_QUARANTINED, reason="it was made up")
    filler.archive(facts[2])
    filler.update(facts[3], ttl="P900D", importance_weight=0.625, set_metadata={"seen": "twice"})
    cores.send(corpus, handbook() + embedded_chunks({"urn:doc:1/c1": [1.0, 2.0]}))
    with CommunityCaller(server, ACME) as keeper:
        keeper.recompute(corpus)
    ann = person(server, "ann", Role.REVIEWER)
    _sign(ann, SignatureTargetKind.NODE, filler.master(corpus).id)
    _sign(ann, SignatureTargetKind.NODE, filler.query(corpus, level=nodes_pb2.LEVEL_SECTION)[0].id)
    _sign(ann, SignatureTargetKind.NODE, filler.query(corpus, level=nodes_pb2.LEVEL_RAW)[0].id)
    _sign(ann, SignatureTargetKind.FACT, facts[4])


def _sign(signer: Person, kind: SignatureTargetKind, target: str) -> None:
    session = signer.log_in()
    prepared = session.prepare_signature(SignatureTarget(kind, UUID(target)), "reviewed")
    session.sign_record(prepared, signer.password, login=signer.account.login)


def said(message: Message, *without: str) -> Message:
    """A message without the fields that depend on the server and the corpus."""
    found = type(message).FromString(message.SerializeToString())
    for name in ("corpus_id", *without):
        if name in found.DESCRIPTOR.fields_by_name:
            found.ClearField(name)
    return found


def test_the_counts_cover_every_record(moved: Moved) -> None:
    counts = moved.done.counts
    assert (moved.done.revision, moved.done.kind) == (1, cores_pb2.CORE_KIND_FULL)
    assert (counts.documents, counts.quads, counts.turns, counts.edges) == (5, 10, 3, 2)
    assert (counts.signatures, counts.library_documents, counts.entity_vectors) == (4, 2, 3)
    assert counts.communities > 0
    assert counts.facts > 10
    assert {skipped.reason for skipped in moved.done.skipped} == {"DERIVED"}


def test_the_moved_corpus_exports_to_the_same_file(moved: Moved) -> None:
    assert moved.target.cores.export(moved.target.corpus).data == moved.core


def test_both_stores_agree_with_themselves(moved: Moved) -> None:
    check_store(moved.origin.server)
    check_store(moved.target.server)


def test_the_hierarchy_is_the_same_at_every_level(moved: Moved) -> None:
    origin, target = (Caller(side.server.address, side.token) for side in (moved.origin, moved.target))
    for level in LEVELS:
        before = origin.query(moved.origin.corpus, level=level)
        after = target.query(moved.target.corpus, level=level)
        assert [said(node, "signatures") for node in before] == [said(node, "signatures") for node in after]
    master = origin.master(moved.origin.corpus).id
    for level in LEVELS[1:]:
        assert [node.id for node in origin.below(master, level)] == [node.id for node in target.below(master, level)]
    for chunk in origin.query(moved.origin.corpus, level=nodes_pb2.LEVEL_CHUNK):
        vectors = [caller.node(chunk.id, with_embedding=True).chunk.embedding for caller in (origin, target)]
        assert vectors[0] == vectors[1]
        assert len(vectors[0]) > 0
        parents = [caller.roll_up(chunk.id, target=nodes_pb2.LEVEL_SECTION) for caller in (origin, target)]
        assert [found.id for found in parents[0].nodes] == [found.id for found in parents[1].nodes]
    origin.close()
    target.close()


def test_documents_have_their_texts_and_sources_their_counts(moved: Moved) -> None:
    found: list[Any] = []
    for side in (moved.origin, moved.target):
        caller = Filler(side.server, side.token)
        documents = caller.list_documents(side.corpus)
        texts = [caller.text(side.corpus, document.id) for document in documents]
        listed = caller.sources.ListSources(
            sources_pb2.ListSourcesRequest(corpus_id=side.corpus, page_size=100), **caller.options()
        )
        found.append(([said(document) for document in documents], texts, sorted(map(str, map(said, listed.sources)))))
        caller.close()
    assert found[0] == found[1]
    assert all(found[0][1])


def test_facts_have_their_statuses_vectors_and_communities(moved: Moved) -> None:
    found: list[Any] = []
    for side in (moved.origin, moved.target):
        with CommunityCaller(side.server, side.token) as caller:
            facts = caller.list(side.corpus)
            found.append([said(fact, "access_count", "last_accessed_at", "community_id") for fact in facts])
            vectors = [caller.get(fact.fact_id, with_embedding=True).embedding for fact in facts]
            found[-1].append([list(vector) for vector in vectors])
            communities = [said(community, "id") for community in caller.all_communities(side.corpus)]
            found[-1].append(sorted(map(str, communities)))
            found[-1].append(sorted(map(sorted, caller.members(side.corpus).values())))
            found[-1].append(caller.state(side.corpus).states[0].state_hash)
    assert found[0] == found[1]
    statuses = {fact.status for fact in found[0] if isinstance(fact, facts_pb2.Fact)}
    assert statuses == set(facts_pb2.FactStatus.values()) - {0}


def test_no_communities_are_due(moved: Moved) -> None:
    assert moved.target.server.server.communities.run_due(datetime.now(UTC)) == 0


def test_searches_and_envelopes_answer_the_same(moved: Moved) -> None:
    found: list[Any] = []
    for side in (moved.origin, moved.target):
        with EnvelopeCaller(side.server, side.token) as caller:
            hits = caller.search(QUESTION, side.corpus, exact=True).hits
            chunks = caller.hits(side.corpus, level=nodes_pb2.LEVEL_CHUNK, text=QUESTION)
            packed = caller.pack(QUESTION, side.corpus, budget=400).envelope
            found.append(
                (
                    [(hit.fact.fact_id, hit.score) for hit in hits],
                    [(chunk.node.id, chunk.score) for chunk in chunks],
                    packed.etag,
                    packed.text,
                    [(fact.fact_id, fact.composite_score, fact.content) for fact in packed.facts],
                )
            )
    assert found[0] == found[1]
    assert found[0][4]


def test_quads_vectors_and_documents_of_other_systems_are_moved(moved: Moved) -> None:
    assert moved.origin.cores.quads_of(moved.origin.corpus) == moved.target.cores.quads_of(moved.target.corpus)
    assert foreign_records(moved.origin.server, moved.origin.corpus) == foreign_records(
        moved.target.server, moved.target.corpus
    )


def test_turns_and_slices_are_the_same(moved: Moved) -> None:
    found: list[Any] = []
    for side in (moved.origin, moved.target):
        caller = Filler(side.server, side.token)
        listed = graphs_pb2.ListTurnsRequest(corpus_id=side.corpus, page_size=100)
        page = caller.graphs.ListTurns(listed, **caller.options())
        anchors = [page.turns[0].turn_id, caller.master(side.corpus).id]
        slices = caller.graphs.Slice(graphs_pb2.SliceRequest(anchors=anchors), **caller.options()).slices
        found.append((list(page.turns), [found_slice.slice_id for found_slice in slices]))
        caller.close()
    assert found[0] == found[1]


def test_moved_signatures_are_shown_as_foreign(moved: Moved) -> None:
    own, foreign = _signatures(moved.origin), _signatures(moved.target)
    assert {signature.foreign for signature in own} == {False}
    assert {signature.foreign for signature in foreign} == {True}
    assert [said(signature, "foreign") for signature in own] == [said(signature, "foreign") for signature in foreign]
    assert all(signature.content_salt for signature in foreign)
    caller = Caller(moved.target.server.address, moved.target.token)
    (shown,) = caller.node(caller.master(moved.target.corpus).id).signatures
    assert shown.foreign
    caller.close()


def _signatures(side: Side) -> list[signatures_pb2.Signature]:
    """The signatures of all nodes and facts of a corpus."""
    caller = Filler(side.server, side.token)
    stub = signatures_pb2_grpc.SignatureServiceStub(caller._channel)
    targets = [
        signatures_pb2.SignatureTarget(kind=signatures_pb2.SIGNATURE_TARGET_KIND_NODE, id=node.id)
        for level in LEVELS
        for node in caller.query(side.corpus, level=level)
    ]
    targets += [
        signatures_pb2.SignatureTarget(kind=signatures_pb2.SIGNATURE_TARGET_KIND_FACT, id=fact.fact_id)
        for fact in caller.list(side.corpus)
    ]
    asked = (signatures_pb2.ListSignaturesRequest(target=target) for target in targets)
    found = [
        signature for request in asked for signature in stub.ListSignatures(request, **caller.options()).signatures
    ]
    caller.close()
    return found


def test_the_moved_corpus_can_be_changed(moved: Moved, tmp_path: Path) -> None:
    """Documents are added, changed and removed, facts are found, sources are erased, and everything still agrees."""
    with serving(tmp_path) as (server, _), ErasingCaller(server, ACME) as caller:
        cores, corpus = CoreCaller(server.address, OPERATOR, ACME_ID), new_corpus(server)
        cores.send(corpus, moved.core)
        documents = caller.list_documents(corpus)
        caller.add(corpus, File("new.txt", "The register of visitors is kept by the porter for one year at least."))
        caller.remove(corpus, documents[0].id)
        assert caller.search("register of visitors", corpus).hits
        caller.erase(corpus, documents[1].source_id)
        caller.erase(corpus, "core:urn:core:handbook")
        caller.erase(corpus, "talks")
        check_store(server)
        caller.purge(corpus)
        check_store(server)
        assert foreign_records(server, corpus).documents == {}
        again = cores.export(corpus).data
        second_corpus = new_corpus(server, GLOBEX)
        globex = CoreCaller(server.address, OPERATOR, GLOBEX_ID)
        globex.send(second_corpus, again, strict=True)
        assert globex.export(second_corpus).data == again
        cores.close()
        globex.close()


def test_a_clients_hierarchy_is_moved(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        caller, cores = Caller(server.address, ACME), CoreCaller(server.address, OPERATOR, ACME_ID)
        corpus, made = new_corpus(server), two_sections()
        put(caller, corpus, made)
        core = cores.export(corpus).data
        globex, theirs = CoreCaller(server.address, OPERATOR, GLOBEX_ID), new_corpus(server, GLOBEX)
        globex.send(theirs, core, strict=True)
        reader = Caller(server.address, GLOBEX)
        assert {node.id for level in LEVELS for node in reader.query(theirs, level=level)} == {
            node.id for node in made.nodes
        }
        assert globex.export(theirs).data == core
        check_store(server)
        for client in (caller, cores, globex, reader):
            client.close()


def test_a_core_without_sources_moves_facts_but_no_hierarchy(moved: Moved, tmp_path: Path) -> None:
    core = moved.origin.cores.export(moved.origin.corpus, include_sources=False).data
    with serving(tmp_path) as (server, caller):
        cores, corpus = CoreCaller(server.address, OPERATOR, ACME_ID), new_corpus(server)
        done = cores.send(corpus, core, strict=True).done
        assert (done.counts.documents, done.counts.chunks) == (0, 0)
        assert len(caller.list(corpus)) == done.counts.facts == moved.done.counts.facts
        assert cores.export(corpus, include_sources=False).data == core
        check_store(server)
        name, text = next(iter(REGULATIONS.items()))
        caller.add(corpus, File(name, text))
        check_store(server)
        cores.close()


def test_an_empty_corpus_is_moved(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, caller):
        cores, corpus = CoreCaller(server.address, OPERATOR, ACME_ID), new_corpus(server)
        core = cores.export(corpus).data
        done = cores.send(new_corpus(server), core, strict=True).done
        assert (done.kind, done.revision) == (cores_pb2.CORE_KIND_FULL, 0)
        caller.add(corpus, File("one.txt", "Something to be removed is here for the moment, and no longer."))
        caller.remove(corpus, caller.list_documents(corpus)[0].id)
        emptied = cores.export(corpus).data
        target = new_corpus(server, GLOBEX)
        globex = CoreCaller(server.address, OPERATOR, GLOBEX_ID)
        globex.send(target, emptied, strict=True)
        assert globex.export(target).data == emptied
        check_store(server)
        cores.close()
        globex.close()


def test_a_full_core_needs_an_empty_corpus(moved: Moved) -> None:
    with refused(Reason.CORPUS_NOT_EMPTY):
        moved.target.cores.send(moved.target.corpus, moved.core)
    with refused(Reason.CORPUS_NOT_EMPTY):
        moved.origin.cores.send(moved.origin.corpus, moved.core)


def test_ids_that_another_corpus_of_the_tenant_has_are_refused(moved: Moved) -> None:
    corpus = new_corpus(moved.target.server, moved.target.token)
    with refused(Reason.NODE_EXISTS):
        moved.target.cores.send(corpus, moved.core)
    caller = Caller(moved.target.server.address, moved.target.token)
    assert caller.head(corpus) == 0
    caller.close()
    check_store(moved.target.server)


def test_a_signed_core_is_imported_only_if_its_signature_fits(moved: Moved, tmp_path: Path) -> None:
    exported = moved.origin.cores.export(moved.origin.corpus)
    key = moved.origin.server.server.logs.signing.signer(1).verifier.encode()
    with serving(tmp_path) as (server, _):
        wrong_key = server.server.logs.signing.signer(1).verifier.encode()
        cores, corpus = CoreCaller(server.address, OPERATOR, ACME_ID), new_corpus(server)
        signed = {"signature": exported.done.signature, "verification_keys": [key]}
        for wrong in ({"signature": ""}, {"verification_keys": [wrong_key]}, {"signature": "no note"}):
            with refused(Reason.CORE_UNSIGNED):
                cores.send(corpus, exported.data, **{**signed, **wrong})
        with refused(Reason.CORE_UNSIGNED):
            cores.send(corpus, handbook(), **signed)
        with refused(Reason.INVALID_ARGUMENT):
            cores.send(corpus, exported.data, verification_keys=["no key"])
        done = cores.send(corpus, exported.data, **signed).done
        assert done.signed_by == key.split("+")[0]
        cores.close()

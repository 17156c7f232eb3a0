"""A full core moves a corpus to another server, where everything answers as it did."""

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
from tests.support.callers.cores import CoreCaller, check_store, embedded_chunks, handbook, kept
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
    """A server, and a corpus there."""

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
    """A corpus with some of everything, and what became of its core in another tenant of a fresh server."""
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
    filler.put(corpus, *(facts_pb2.FactDraft(content=one, source_id="archive") for one in alike))
    facts = [one.fact_id for one in filler.list(corpus) if one.status == facts_pb2.FACT_STATUS_ACTIVE]
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


def _sign(who: Person, kind: SignatureTargetKind, target: str) -> None:
    session = who.log_in()
    prepared = session.prepare_signature(SignatureTarget(kind, UUID(target)), "reviewed")
    session.sign_record(prepared, who.password, login=who.account.login)


def said(message: Message, *without: str) -> Message:
    """But for what is of the server and the corpus."""
    found = type(message).FromString(message.SerializeToString())
    for name in ("corpus_id", *without):
        if name in found.DESCRIPTOR.fields_by_name:
            found.ClearField(name)
    return found


def test_everything_is_counted(moved: Moved) -> None:
    counts = moved.done.counts
    assert (moved.done.revision, moved.done.kind) == (1, cores_pb2.CORE_KIND_FULL)
    assert (counts.documents, counts.quads, counts.turns, counts.edges) == (5, 10, 3, 2)
    assert (counts.signatures, counts.library_documents, counts.entity_vectors) == (4, 2, 3)
    assert counts.communities > 0
    assert counts.facts > 10
    assert {one.reason for one in moved.done.skipped} == {"DERIVED"}


def test_exported_again_it_is_the_same_file(moved: Moved) -> None:
    assert moved.target.cores.export(moved.target.corpus).data == moved.core


def test_both_stores_agree_with_themselves(moved: Moved) -> None:
    check_store(moved.origin.server)
    check_store(moved.target.server)


def test_the_hierarchy_is_the_same_at_every_level(moved: Moved) -> None:
    origin, target = (Caller(side.server.address, side.token) for side in (moved.origin, moved.target))
    for level in LEVELS:
        before = origin.query(moved.origin.corpus, level=level)
        after = target.query(moved.target.corpus, level=level)
        assert [said(one, "signatures") for one in before] == [said(one, "signatures") for one in after]
    master = origin.master(moved.origin.corpus).id
    for level in LEVELS[1:]:
        assert [one.id for one in origin.below(master, level)] == [one.id for one in target.below(master, level)]
    for one in origin.query(moved.origin.corpus, level=nodes_pb2.LEVEL_CHUNK):
        vectors = [caller.node(one.id, with_embedding=True).chunk.embedding for caller in (origin, target)]
        assert vectors[0] == vectors[1]
        assert len(vectors[0]) > 0
        parents = [caller.roll_up(one.id, target=nodes_pb2.LEVEL_SECTION) for caller in (origin, target)]
        assert [found.id for found in parents[0].nodes] == [found.id for found in parents[1].nodes]
    origin.close()
    target.close()


def test_documents_have_their_texts_and_sources_their_counts(moved: Moved) -> None:
    found: list[Any] = []
    for side in (moved.origin, moved.target):
        caller = Filler(side.server, side.token)
        documents = caller.list_documents(side.corpus)
        texts = [caller.text(side.corpus, one.id) for one in documents]
        listed = caller.sources.ListSources(
            sources_pb2.ListSourcesRequest(corpus_id=side.corpus, page_size=100), **caller.options()
        )
        found.append(([said(one) for one in documents], texts, sorted(map(str, map(said, listed.sources)))))
        caller.close()
    assert found[0] == found[1]
    assert all(found[0][1])


def test_facts_have_their_statuses_vectors_and_communities(moved: Moved) -> None:
    found: list[Any] = []
    for side in (moved.origin, moved.target):
        with CommunityCaller(side.server, side.token) as caller:
            facts = caller.list(side.corpus)
            found.append([said(one, "access_count", "last_accessed_at", "community_id") for one in facts])
            vectors = [caller.get(one.fact_id, with_embedding=True).embedding for one in facts]
            found[-1].append([list(one) for one in vectors])
            communities = [said(one, "id") for one in caller.all_communities(side.corpus)]
            found[-1].append(sorted(map(str, communities)))
            found[-1].append(sorted(map(sorted, caller.members(side.corpus).values())))
            found[-1].append(caller.state(side.corpus).states[0].state_hash)
    assert found[0] == found[1]
    statuses = {one.status for one in found[0] if isinstance(one, facts_pb2.Fact)}
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
                    [(one.fact.fact_id, one.score) for one in hits],
                    [(one.node.id, one.score) for one in chunks],
                    packed.etag,
                    packed.text,
                    [(one.fact_id, one.composite_score, one.content) for one in packed.facts],
                )
            )
    assert found[0] == found[1]
    assert found[0][4]


def test_quads_vectors_and_documents_of_other_systems_are_there(moved: Moved) -> None:
    assert moved.origin.cores.quads_of(moved.origin.corpus) == moved.target.cores.quads_of(moved.target.corpus)
    assert kept(moved.origin.server, moved.origin.corpus) == kept(moved.target.server, moved.target.corpus)


def test_turns_and_slices_are_the_same(moved: Moved) -> None:
    found: list[Any] = []
    for side in (moved.origin, moved.target):
        caller = Filler(side.server, side.token)
        listed = graphs_pb2.ListTurnsRequest(corpus_id=side.corpus, page_size=100)
        page = caller.graphs.ListTurns(listed, **caller.options())
        anchors = [page.turns[0].turn_id, caller.master(side.corpus).id]
        slices = caller.graphs.Slice(graphs_pb2.SliceRequest(anchors=anchors), **caller.options()).slices
        found.append((list(page.turns), [one.slice_id for one in slices]))
        caller.close()
    assert found[0] == found[1]


def test_signatures_are_shown_as_those_of_another_server(moved: Moved) -> None:
    own, foreign = _signatures(moved.origin), _signatures(moved.target)
    assert {one.foreign for one in own} == {False}
    assert {one.foreign for one in foreign} == {True}
    assert [said(one, "foreign") for one in own] == [said(one, "foreign") for one in foreign]
    assert all(one.content_salt for one in foreign)
    caller = Caller(moved.target.server.address, moved.target.token)
    (shown,) = caller.node(caller.master(moved.target.corpus).id).signatures
    assert shown.foreign
    caller.close()


def _signatures(side: Side) -> list[signatures_pb2.Signature]:
    """Of all nodes and facts of a corpus."""
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
    asked = (signatures_pb2.ListSignaturesRequest(target=one) for one in targets)
    found = [one for request in asked for one in stub.ListSignatures(request, **caller.options()).signatures]
    caller.close()
    return found


def test_life_goes_on_in_the_corpus(moved: Moved, tmp_path: Path) -> None:
    """Documents are added, changed and removed, facts found, sources erased; and all of it agrees."""
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
        assert kept(server, corpus).documents == {}
        again = cores.export(corpus).data
        other = new_corpus(server, GLOBEX)
        globex = CoreCaller(server.address, OPERATOR, GLOBEX_ID)
        globex.send(other, again, strict=True)
        assert globex.export(other).data == again
        cores.close()
        globex.close()


def test_a_hierarchy_that_a_client_made_is_moved(tmp_path: Path) -> None:
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
        for one in (caller, cores, globex, reader):
            one.close()


def test_without_sources_facts_are_moved_and_no_hierarchy(moved: Moved, tmp_path: Path) -> None:
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


def test_ids_that_the_tenant_has_elsewhere_are_refused(moved: Moved) -> None:
    corpus = new_corpus(moved.target.server, moved.target.token)
    with refused(Reason.NODE_EXISTS):
        moved.target.cores.send(corpus, moved.core)
    caller = Caller(moved.target.server.address, moved.target.token)
    assert caller.head(corpus) == 0
    caller.close()
    check_store(moved.target.server)


def test_a_signed_core_is_imported_only_if_it_is_the_one_that_was_signed(moved: Moved, tmp_path: Path) -> None:
    exported = moved.origin.cores.export(moved.origin.corpus)
    key = moved.origin.server.server.logs.signing.verifier_key(1)
    with serving(tmp_path) as (server, _):
        other = server.server.logs.signing.verifier_key(1)
        cores, corpus = CoreCaller(server.address, OPERATOR, ACME_ID), new_corpus(server)
        signed = {"signature": exported.done.signature, "verification_keys": [key]}
        for wrong in ({"signature": ""}, {"verification_keys": [other]}, {"signature": "no note"}):
            with refused(Reason.CORE_UNSIGNED):
                cores.send(corpus, exported.data, **{**signed, **wrong})
        with refused(Reason.CORE_UNSIGNED):
            cores.send(corpus, handbook(), **signed)
        with refused(Reason.INVALID_ARGUMENT):
            cores.send(corpus, exported.data, verification_keys=["no key"])
        done = cores.send(corpus, exported.data, **signed).done
        assert done.signed_by == key.split("+")[0]
        cores.close()

"""The quads of urn:graph:retrieval: the caller's own envelopes, and the facts in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from drillcore import Grant, Role
from drillcore_formats.quads import Iri, Literal
from drillcore_proto.v1 import envelopes_pb2, facts_pb2
from drillcore_server.envelopes import store as envelopes
from drillcore_server.envelopes.read import forget_envelopes
from drillcore_server.graphs import derived_quads
from drillcore_server.graphs.quad_model import (
    GRAPH_RETRIEVAL,
    NS,
    PROV,
    RDF_TYPE,
    XSD,
    Quad,
    QuadPattern,
    agent_iri,
    iri_of,
)
from drillcore_server.storage.ids import EnvelopeId, FactId
from tests.support.callers.envelopes import TEXTS, filled, ids
from tests.support.callers.erasures import problems
from tests.support.callers.knowledge import at_revision
from tests.support.callers.provenance import ExplainingCaller
from tests.support.servers.derived_quads import assert_every_pattern_agrees
from tests.support.servers.people import make_service
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, Running, create_tenants, running
from tests.support.stores.aged import keys_of, keyspace

ALL = QuadPattern(graph=GRAPH_RETRIEVAL)
QUERY = "how long must records of transactions be kept?"


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[ExplainingCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client())
        with ExplainingCaller(server, ACME) as found:
            yield found


def told_of(issued: envelopes_pb2.PackEnvelopeResponse, facts: list[str], principal: str = "ann@acme") -> Counter[Quad]:
    """The quads that an envelope must give."""
    envelope = Iri(iri_of("envelope", UUID(issued.envelope_id)))
    at = issued.created_at.ToDatetime(tzinfo=UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    said = [
        (RDF_TYPE, Iri(f"{PROV}Entity")),
        (RDF_TYPE, Iri(f"{NS}Envelope")),
        (f"{PROV}generatedAtTime", Literal(at, f"{XSD}dateTime")),
        (f"{PROV}wasAttributedTo", Iri(agent_iri(principal))),
        *((f"{PROV}wasDerivedFrom", Iri(iri_of("fact", UUID(fact_id)))) for fact_id in facts),
    ]
    return Counter(Quad(envelope, Iri(predicate), object_, GRAPH_RETRIEVAL) for predicate, object_ in said)


def entries(server: Running, corpus: str) -> int:
    """How many index entries lead from facts to envelopes."""
    keys = keys_of(server, corpus)
    return server.engine.run(lambda tr: sum(1 for _ in tr.range(*keys.all_fact_envelopes())))


def test_the_quads_of_an_envelope_name_its_facts(caller: ExplainingCaller) -> None:
    corpus = filled(caller)
    issued = caller.pack(QUERY, corpus)
    assert len(ids(issued)) > 1
    assert Counter(caller.match(corpus, ALL)) == told_of(issued, ids(issued))
    assert problems(caller.server) == ()


def test_every_pattern_finds_the_quads_of_envelopes(caller: ExplainingCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = filled(caller)
    issued = [caller.pack(query, corpus, budget=budget) for query in TEXTS[:3] for budget in (60, 200)]
    plain = list(sum((told_of(envelope, ids(envelope)) for envelope in issued), Counter()))
    assert_every_pattern_agrees(
        plain, lambda pattern, size: caller.match(corpus, pattern._replace(graph=GRAPH_RETRIEVAL), size)
    )
    monkeypatch.setattr(derived_quads, "_ENVELOPE_KEYS_MAX", 2)
    assert Counter(caller.match(corpus, ALL)) == Counter(plain), "the same quads on any number of pages"


def test_a_corpus_has_quads_of_its_own_facts_only(caller: ExplainingCaller) -> None:
    corpora = [filled(caller, name) for name in ("one", "other")]
    unasked = filled(caller, "unasked")
    issued = caller.pack(QUERY, *corpora, budget=600, scoring=envelopes_pb2.ScoringOptions(duplicate_similarity=1.0))
    for corpus in corpora:
        own = {fact.fact_id for fact in caller.list(corpus)}
        packed = [fact_id for fact_id in ids(issued) if fact_id in own]
        assert packed
        assert Counter(caller.match(corpus, ALL)) == told_of(issued, packed)
    assert caller.match(unasked, ALL) == []


def test_the_envelopes_of_other_callers_are_not_shown(caller: ExplainingCaller) -> None:
    corpus = filled(caller)
    issued = caller.pack(QUERY, corpus)
    of_fact = QuadPattern(object=Iri(iri_of("fact", UUID(ids(issued)[0]))))
    of_envelope = QuadPattern(subject=Iri(iri_of("envelope", UUID(issued.envelope_id))))
    for pattern in (ALL, of_fact, of_envelope):
        assert caller.match(corpus, pattern)
    for role in (Role.READER, Role.AUDITOR, Role.OPERATOR):
        token = make_service(caller.server, Grant(role), Grant(Role.READER)).token
        with ExplainingCaller(caller.server, token) as stranger:
            for pattern in (ALL, of_fact, of_envelope):
                assert stranger.match(corpus, pattern) == []


def test_tenants_that_share_a_corpus_each_see_their_own_envelopes(caller: ExplainingCaller) -> None:
    corpus = filled(caller)
    caller.server.client().update_corpus(corpus, tenant_id=ACME_ID, share_with=[GLOBEX_ID])
    ours = caller.pack(QUERY, corpus)
    with ExplainingCaller(caller.server, GLOBEX) as globex:
        theirs = globex.pack(QUERY, corpus)
        assert ids(ours) == ids(theirs)
        assert Counter(caller.match(corpus, ALL)) == told_of(ours, ids(ours))
        assert Counter(globex.match(corpus, ALL)) == told_of(theirs, ids(theirs), "gus@globex")
        fact = QuadPattern(object=Iri(iri_of("fact", UUID(ids(ours)[0]))))
        assert [quad.subject for quad in globex.match(corpus, fact)] == [
            Iri(iri_of("envelope", UUID(theirs.envelope_id)))
        ]
    assert entries(caller.server, corpus) == 2 * len(ids(ours))
    assert problems(caller.server) == ()


def test_a_revision_before_the_envelope_does_not_have_it(caller: ExplainingCaller) -> None:
    corpus = filled(caller)
    early = caller.pack(QUERY, corpus)
    before = caller.head(corpus)
    caller.put(corpus, facts_pb2.FactDraft(content=f"{TEXTS[0]} Always.", source_id="later"))
    late = caller.pack(QUERY, corpus)
    assert {quad.subject for quad in caller.match(corpus, ALL)} == {
        Iri(iri_of("envelope", UUID(envelope.envelope_id))) for envelope in (early, late)
    }
    assert Counter(caller.match(corpus, ALL, as_of=at_revision(before))) == told_of(early, ids(early))


def test_facts_of_the_session_belong_to_no_corpus(caller: ExplainingCaller) -> None:
    corpus = filled(caller)
    draft = facts_pb2.FactDraft(content=TEXTS[0].replace("seven", "nine"), source_id="s")
    caller.put(corpus, draft, cache_control="no-store", session_id="s")
    issued = caller.pack(QUERY, corpus, session_id="s", budget=400)
    stored = [fact.fact_id for fact in issued.envelope.facts if not fact.session_only]
    assert len(stored) < len(ids(issued))
    assert Counter(caller.match(corpus, ALL)) == told_of(issued, stored)
    assert entries(caller.server, corpus) == len(stored)


def test_index_entries_of_an_envelope_are_forgotten_with_it(
    caller: ExplainingCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envelopes, "_KEYS_OF_END", 3)
    monkeypatch.setattr(envelopes, "_FORGOTTEN_KEYS", 4)
    corpus = filled(caller)
    packed = [caller.pack(query, corpus) for query in TEXTS]
    assert entries(caller.server, corpus) == sum(len(ids(envelope)) for envelope in packed)
    engine, keys, now = caller.server.engine, keyspace(caller.server), datetime.now(UTC)
    assert forget_envelopes(engine, keys, now + timedelta(days=399)) == 0
    assert forget_envelopes(engine, keys, now + timedelta(days=401)) > len(packed), (
        "large envelopes take several entries"
    )
    assert entries(caller.server, corpus) == 0
    assert caller.match(corpus, ALL) == []
    assert problems(caller.server) == ()


def test_a_repeated_request_leaves_one_envelope(caller: ExplainingCaller) -> None:
    corpus = filled(caller)
    first, again = (caller.pack(QUERY, corpus, request_id="the same") for _ in range(2))
    assert first.envelope_id == again.envelope_id
    assert Counter(caller.match(corpus, ALL)) == told_of(first, ids(first))


def test_fsck_finds_missing_and_wrong_index_entries_of_envelopes(
    caller: ExplainingCaller,
) -> None:
    corpus = filled(caller)
    issued = caller.pack(QUERY, corpus)
    engine, keys = caller.server.engine, keys_of(caller.server, corpus)
    fact, envelope = FactId(UUID(ids(issued)[0])), EnvelopeId(UUID(issued.envelope_id))
    key = keys.fact_envelope(fact, envelope)
    value = engine.run(lambda tr: tr.get(key))
    assert value is not None
    engine.run(lambda tr: tr.clear(key))
    assert problems(caller.server) == (f"tenant {ACME_ID}: 1 facts of envelope {envelope} do not lead to it",)
    engine.run(lambda tr: tr.set(key, value))
    astray = FactId(UUID(int=7))
    engine.run(lambda tr: tr.set(keys.fact_envelope(astray, envelope), value))
    assert problems(caller.server) == (
        f"corpus {corpus}: fact {astray} leads to envelope {envelope}, which does not hold it",
    )

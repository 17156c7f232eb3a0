"""Explain leads from anything in a corpus, and from an envelope, to the exact characters of the original documents."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from unittest import mock
from uuid import UUID

import pytest

from drillcore import Grant, Level, Role
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2, nodes_pb2
from drillcore_proto.v1 import provenance_pb2 as pb
from drillcore_server.graphs import explain
from drillcore_server.graphs.quad_model import iri_of
from tests.support.callers.envelopes import TEXTS, filled, ids, refusal
from tests.support.callers.hierarchies import PARAGRAPHS, Made, add_chunk, new_document, put, two_sections, whole_text
from tests.support.callers.knowledge import at_revision, files, update_parts
from tests.support.callers.provenance import ExplainingCaller, assert_chained, kinds, of_kind
from tests.support.data.texts import REGULATIONS
from tests.support.round_trips.measured import cost_of
from tests.support.servers.people import make_service
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, create_tenants, running
from tests.support.stores.trails import records

SENT = dict(list(REGULATIONS.items())[:4])
CHAIN = ["fact", "chunk", "raw", "document", "source"]
QUERY = "how long must records of transactions be kept?"


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[ExplainingCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client())
        with ExplainingCaller(server, ACME) as found:
            yield found


@pytest.fixture
def corpus(caller: ExplainingCaller) -> str:
    """A corpus with documents whose sources are their names."""
    made = caller.corpus()
    caller.add(made, *files(SENT))
    return made


def text_at(explained: pb.ExplainResponse, step: pb.Explained) -> str:
    """The characters of the file that a step is about."""
    (document,) = [
        document_step for document_step in of_kind(explained, "document") if document_step.id == step.document_id
    ]
    (source,) = document.derived_from
    (name,) = [source_step.id for source_step in of_kind(explained, "source") if source_step.iri == source]
    return SENT[name][step.span.start : step.span.end]


def assert_original(explained: pb.ExplainResponse) -> None:
    """Asserts that every text is that of the file, from the first character of its span to the last."""
    shown = [step for step in explained.steps if step.text]
    assert shown
    for step in shown:
        assert step.text == text_at(explained, step), step.iri


def test_the_explanation_of_a_documents_fact_ends_in_exactly_its_characters(
    caller: ExplainingCaller, corpus: str
) -> None:
    facts = caller.list(corpus)
    assert len(facts) > 5
    for fact in facts:
        explained = caller.explain(fact.fact_id)
        first, *further = kinds(explained)[:5], *kinds(explained)[5:]
        assert (first, set(further)) in [(CHAIN, set()), (CHAIN, {"raw"})]
        assert_chained(explained.steps)
        assert_original(explained)
        shown = explained.steps[0]
        assert (shown.iri, shown.id) == (iri_of("fact", UUID(fact.fact_id)), fact.fact_id)
        assert (shown.span.start, shown.span.end) == (fact.span.start, fact.span.end)
        assert "".join(raw.text for raw in of_kind(explained, "raw")) == shown.text
        assert fact.content.endswith(" ".join(shown.text.split()))
        assert (explained.corpus_id, explained.revision) == (corpus, caller.head(corpus))
        assert not explained.truncated


def test_the_explanation_of_a_fact_without_document_ends_in_its_source(caller: ExplainingCaller, corpus: str) -> None:
    (fact,) = caller.put(corpus, facts_pb2.FactDraft(content=TEXTS[0], source_id="a conversation")).fact_ids
    explained = caller.explain(fact)
    assert kinds(explained) == ["fact", "source"]
    assert_chained(explained.steps)
    assert (explained.steps[0].text, explained.steps[1].id) == ("", "a conversation")


def test_the_explanation_of_a_chunk_or_raw_ends_in_exactly_its_characters(
    caller: ExplainingCaller, corpus: str
) -> None:
    for chunk in caller.query(corpus, level=nodes_pb2.LEVEL_CHUNK):
        explained = caller.explain(chunk.id)
        assert_chained(explained.steps)
        assert_original(explained)
        assert "".join(raw.text for raw in of_kind(explained, "raw")) == text_at(explained, explained.steps[0])
    for raw in caller.query(corpus, level=nodes_pb2.LEVEL_RAW):
        explained = caller.explain(raw.id)
        assert kinds(explained) == ["raw", "document", "source"]
        assert explained.steps[0].text == raw.raw.content
        assert_original(explained)


@pytest.mark.parametrize("level", [nodes_pb2.LEVEL_SECTION, nodes_pb2.LEVEL_MASTER])
def test_the_explanation_of_a_summary_ends_in_its_citations(
    caller: ExplainingCaller, corpus: str, level: nodes_pb2.Level.ValueType
) -> None:
    for node in caller.query(corpus, level=level):
        content = node.section if level == nodes_pb2.LEVEL_SECTION else node.master
        explained = caller.explain(node.id)
        assert_chained(explained.steps)
        assert_original(explained)
        assert explained.steps[0].title == (node.section.title if level == nodes_pb2.LEVEL_SECTION else "")
        assert content.citations
        named = [iri_of("chunk", UUID(citation.chunk_id)) for citation in content.citations]
        assert set(named) <= set(explained.steps[0].derived_from)
        for citation in content.citations:
            shown = [raw for raw in of_kind(explained, "raw") if _overlap(raw, citation)]
            assert citation.text in "".join(raw.text for raw in shown)


def _overlap(raw: pb.Explained, cited: nodes_pb2.Citation) -> bool:
    same = raw.document_id == cited.document_id
    return same and raw.span.start < cited.span.end and cited.span.start < raw.span.end


@pytest.mark.parametrize("at_once", [2, 100])
def test_what_a_summary_cites_is_read_together(caller: ExplainingCaller, corpus: str, at_once: int) -> None:
    master = caller.master(corpus).id
    explained = caller.explain(master)
    with mock.patch.object(explain, "_READ_AT_ONCE", at_once):
        assert caller.explain(master) == explained
        cost = cost_of(caller.server, "Explain", lambda: caller.explain(master))
    chunks = len(of_kind(explained, "chunk"))
    assert chunks > 2
    assert cost.round_trips <= 5 + 2 * math.ceil(chunks / at_once)


def test_documents_and_sources_are_found_in_their_corpus(caller: ExplainingCaller, corpus: str) -> None:
    (document, *_) = caller.list_documents(corpus)
    by_id = caller.explain(document.id, corpus)
    assert kinds(by_id) == ["document", "source"]
    assert caller.explain(iri_of("document", UUID(document.id)), corpus) == by_id
    source = caller.explain(iri_of("source", document.source_id), corpus)
    assert list(source.steps) == [by_id.steps[1]]
    assert source.steps[0].title == document.title
    for node in (iri_of("document", UUID(document.id)), iri_of("source", document.source_id)):
        assert refusal(lambda n=node: caller.explain(n)).reason == Reason.INVALID_ARGUMENT.name  # type: ignore[misc]
    assert refusal(lambda: caller.explain(document.id)).reason == Reason.NODE_NOT_FOUND.name


def test_an_iri_gives_the_same_explanation_as_an_id_but_only_for_its_own_kind(
    caller: ExplainingCaller, corpus: str
) -> None:
    fact = caller.list(corpus)[0].fact_id
    nodes = {kind: caller.query(corpus, level=getattr(nodes_pb2, f"LEVEL_{kind.upper()}"))[0].id for kind in LEVELS}
    for kind, identity in {"fact": fact, **nodes}.items():
        by_id = caller.explain(identity)
        assert caller.explain(iri_of(kind, UUID(identity))) == by_id
        assert caller.explain(identity, corpus) == by_id
        wrong_kind = "raw" if kind != "raw" else "fact"
        assert refusal(lambda o=wrong_kind, i=identity: caller.explain(iri_of(o, UUID(i)))).reason == "NODE_NOT_FOUND"  # type: ignore[misc]
        elsewhere = caller.corpus(f"elsewhere {kind}")
        assert refusal(lambda i=identity, e=elsewhere: caller.explain(i, e)).reason == "NODE_NOT_FOUND"  # type: ignore[misc]


LEVELS = ("master", "section", "chunk", "raw")


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (str(UUID(int=1)), Reason.NODE_NOT_FOUND),
        ("https://example.org/", Reason.NODE_NOT_FOUND),
        ("urn:drillcore:fact:none", Reason.NODE_NOT_FOUND),
        ("urn:drillcore:agent:ann", Reason.NODE_NOT_FOUND),
        (iri_of("source", "no such source"), Reason.NODE_NOT_FOUND),
        (iri_of("document", UUID(int=1)), Reason.NODE_NOT_FOUND),
        (iri_of("envelope", UUID(int=1)), Reason.NODE_NOT_FOUND),
        ("", Reason.INVALID_ID),
        ("no id", Reason.INVALID_ID),
    ],
)
def test_a_missing_node_is_not_found(caller: ExplainingCaller, node: str, reason: Reason) -> None:
    corpus = caller.corpus()
    assert refusal(lambda: caller.explain(node, corpus)).reason == reason.name


def test_the_explanation_of_a_clients_hierarchy_ends_in_its_raws(caller: ExplainingCaller) -> None:
    corpus, made = caller.corpus(), two_sections()
    put(caller, corpus, made)
    for node in made.nodes:
        explained = caller.explain(node.id)
        assert_chained(explained.steps)
        for raw in of_kind(explained, "raw"):
            assert raw.text == whole_text()[raw.span.start : raw.span.end]
        if node.HasField("raw"):
            assert explained.steps[0].text == node.raw.content
    cited = of_kind(caller.explain(made.master.id), "raw")
    assert sorted({step.text for step in cited}) == sorted({PARAGRAPHS[0][:10], PARAGRAPHS[2][:10]}), (
        "exactly the cited characters"
    )


def test_the_explanation_of_an_envelope_ends_in_the_sources_of_its_facts(caller: ExplainingCaller, corpus: str) -> None:
    second_corpus = filled(caller, "other")
    issued = caller.pack("how long are records kept?", corpus, second_corpus, budget=400)
    caller.put(corpus, facts_pb2.FactDraft(content=TEXTS[0], source_id="later"))
    for node in (issued.envelope_id, iri_of("envelope", UUID(issued.envelope_id))):
        explained = caller.explain(node)
        assert_chained(explained.steps)
        assert_original(explained)
        assert list(explained.steps[0].derived_from) == [iri_of("fact", UUID(fact_id)) for fact_id in ids(issued)]
        assert sorted(step.id for step in of_kind(explained, "fact")) == sorted(ids(issued))
        assert (explained.corpus_id, explained.revision) == ("", 0), "the envelope is of two corpora"
    alone = caller.pack("how long are records kept?", corpus)
    explained = caller.explain(alone.envelope_id)
    assert (explained.corpus_id, explained.revision) == (corpus, alone.envelope.revisions[corpus])


def test_an_envelope_is_explained_only_to_its_recipient(caller: ExplainingCaller) -> None:
    issued = caller.pack(QUERY, filled(caller))
    for role in (Role.READER, Role.AUDITOR, Role.OPERATOR):
        token = make_service(caller.server, Grant(role), Grant(Role.READER)).token
        with ExplainingCaller(caller.server, token) as stranger:
            assert refusal(lambda c=stranger: c.explain(issued.envelope_id)).reason == Reason.NODE_NOT_FOUND.name  # type: ignore[misc]


def test_the_explanation_of_an_envelope_leaves_out_facts_of_the_session(caller: ExplainingCaller) -> None:
    corpus = filled(caller)
    draft = facts_pb2.FactDraft(content=TEXTS[0].replace("seven", "nine"), source_id="s")
    caller.put(corpus, draft, cache_control="no-store", session_id="s")
    issued = caller.pack(QUERY, corpus, session_id="s", budget=400)
    own = [fact.fact_id for fact in issued.envelope.facts if fact.session_only]
    assert own
    explained = caller.explain(issued.envelope_id)
    assert sorted(step.id for step in of_kind(explained, "fact")) == sorted(set(ids(issued)) - set(own))


def test_an_erased_source_is_named_without_its_content(caller: ExplainingCaller, corpus: str) -> None:
    fact = next(listed for listed in caller.list(corpus) if listed.source_id == "privacy.txt")
    issued = caller.pack("erasure of personal data without undue delay", corpus, budget=600)
    assert fact.source_id in {fact.provenance.source_id for fact in issued.envelope.facts}
    before, whole = caller.head(corpus), caller.explain(fact.fact_id)
    document = next(listed for listed in caller.list_documents(corpus) if listed.source_id == "privacy.txt").id
    chunk, raw = (of_kind(whole, kind)[0].id for kind in ("chunk", "raw"))
    caller.erase(corpus, "privacy.txt")
    for revision in (before, None):
        as_of = None if revision is None else at_revision(revision)
        for node in (fact.fact_id, chunk, raw, document, iri_of("source", "privacy.txt")):
            (step,) = caller.explain(node, corpus, as_of=as_of).steps
            assert (step.gone, step.title, step.text, list(step.derived_from)) == (True, "", "", [])
    told = caller.explain(issued.envelope_id)
    gone = [step for step in of_kind(told, "fact") if step.gone]
    assert fact.fact_id in {step.id for step in gone}
    assert len(gone) < len(of_kind(told, "fact"))
    for step in told.steps:
        assert "privacy" not in f"{step.id} {step.title} {step.text}"
        assert not step.text or step.text not in SENT["privacy.txt"]


def test_a_removed_document_is_gone_at_the_head_and_there_at_earlier_revisions(
    caller: ExplainingCaller, corpus: str
) -> None:
    fact = next(listed for listed in caller.list(corpus) if listed.source_id == "trials.txt")
    before, whole = caller.head(corpus), caller.explain(fact.fact_id)
    caller.remove(corpus, fact.document_id)
    assert [(step.kind, step.gone) for step in caller.explain(fact.fact_id).steps] == [("fact", False), ("chunk", True)]
    (gone,) = caller.explain(fact.document_id, corpus).steps
    assert gone.gone
    assert caller.explain(fact.fact_id, as_of=at_revision(before)) == whole
    (unborn,) = caller.explain(fact.fact_id, as_of=at_revision(0)).steps
    assert unborn.gone


def test_a_stale_fact_leads_to_its_former_chunk(caller: ExplainingCaller, corpus: str) -> None:
    fact = next(listed for listed in caller.list(corpus) if "72 hours" in listed.content)
    parts = update_parts(
        corpus, SENT["privacy.txt"].replace("72 hours", "three days"), document_id=fact.document_id, name="privacy.txt"
    )
    list(caller.documents.UpdateDocument(parts, **caller.options()))
    explained = caller.explain(fact.fact_id)
    assert [(step.kind, step.gone, step.text) for step in explained.steps] == [("fact", False, ""), ("chunk", True, "")]


def test_everything_that_an_explanation_shows_is_recorded_as_read(caller: ExplainingCaller, corpus: str) -> None:
    fact = caller.list(corpus)[0]
    count = caller.get(fact.fact_id).access_count
    explained = caller.explain(fact.fact_id)
    assert caller.get(fact.fact_id).access_count == count + 2, (
        "the read before the explanation, and the explanation itself"
    )
    (record,) = records(caller.server, call="Explain")
    shown = {step.id for kind in ("fact", "chunk", "raw") for step in of_kind(explained, kind)}
    assert shown <= set(record["nodes"])
    assert {step.id for step in of_kind(explained, "document")} <= set(record["documents"])


def test_a_caller_who_may_not_read_every_level_gets_no_explanation(caller: ExplainingCaller, corpus: str) -> None:
    fact = caller.list(corpus)[0]
    issued = caller.pack(QUERY, corpus)
    assert issued.envelope_id
    grant = Grant(Role.READER, levels=(Level.CHUNK, Level.SECTION, Level.MASTER))
    with ExplainingCaller(caller.server, make_service(caller.server, grant).token) as some:
        own = some.pack(QUERY, corpus).envelope_id
        for node in (fact.fact_id, fact.chunk_id, fact.document_id, own, iri_of("source", fact.source_id)):
            assert refusal(lambda n=node: some.explain(n, corpus)).reason == Reason.PERMISSION_DENIED.name  # type: ignore[misc]


def test_a_shared_corpus_is_explained_to_a_tenant_that_may_read_it(caller: ExplainingCaller, corpus: str) -> None:
    fact = caller.list(corpus)[0].fact_id
    with ExplainingCaller(caller.server, GLOBEX) as globex:
        assert refusal(lambda: globex.explain(fact)).reason == Reason.NODE_NOT_FOUND.name
        caller.server.client().update_corpus(corpus, tenant_id=ACME_ID, share_with=[GLOBEX_ID])
        assert globex.explain(fact) == caller.explain(fact)
        issued = globex.pack(QUERY, corpus)
        assert_original(globex.explain(issued.envelope_id))
        assert refusal(lambda: caller.explain(issued.envelope_id)).reason == Reason.NODE_NOT_FOUND.name


def test_there_are_never_more_than_a_thousand_steps(caller: ExplainingCaller) -> None:
    corpus, made = caller.corpus(), Made()
    made.documents = [new_document("long.txt")]
    master = made.add(master=nodes_pb2.MasterContent(summary="Long.")).id
    section = made.add(master, section=nodes_pb2.SectionContent(title="Long", category="long", summary="Long.")).id
    texts = [(30 * place, f"Sentence number {place}.") for place in range(1_200)]
    chunk = add_chunk(made, section, made.documents[0].id, texts)
    put(caller, corpus, made)
    explained = caller.explain(chunk)
    assert (len(explained.steps), explained.truncated) == (1_000, True)
    assert len(explained.steps[0].derived_from) == 1_000

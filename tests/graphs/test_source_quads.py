"""The quads of urn:graph:source: every pattern finds exactly the quads of the records, after any change to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from drillcore_formats.quads import Blank, Iri, Literal
from drillcore_proto.v1 import facts_pb2
from drillcore_server.graphs.quad_model import (
    DC,
    GRAPH_SOURCE,
    NS,
    PROV,
    RDF_TYPE,
    TG,
    Quad,
    QuadPattern,
    check_quad,
    iri_of,
    named_by,
)
from drillcore_server.storage.ids import SourceId
from tests.support.callers.erasures import ErasingCaller
from tests.support.callers.hierarchies import put, two_sections
from tests.support.callers.knowledge import File, files, update_parts
from tests.support.data.texts import REGULATIONS
from tests.support.servers.derived_quads import assert_every_pattern_agrees, source_pages, source_quads, walked
from tests.support.servers.running import ACME, create_tenants, running
from tests.support.stores.aged import age

FACT = "Records of board meetings are kept for ten years after the meeting, together with their annexes."
DERIVED_FROM = Iri(f"{PROV}wasDerivedFrom")


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[ErasingCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client())
        with ErasingCaller(server, ACME) as found:
            yield found


def assert_agrees(caller: ErasingCaller, corpus: str, revision: int | None = None) -> list[Quad]:
    plain = source_quads(caller.server, corpus, revision)
    assert max(Counter(plain).values(), default=1) == 1, "no quad comes twice"
    for quad in plain:
        check_quad(quad, "derived")
    pages = source_pages(caller.server, corpus, revision)
    assert_every_pattern_agrees(plain, lambda pattern, quads_max: walked(pages, pattern, quads_max))
    return plain


def test_every_pattern_agrees_after_every_change_of_documents_and_facts(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    assert assert_agrees(caller, corpus) == []
    ids = caller.add(corpus, *files(dict(list(REGULATIONS.items())[:5]))).ids
    assert_agrees(caller, corpus)
    caller.put(corpus, facts_pb2.FactDraft(content=FACT, source_id="https://example.org/minutes 7"))
    fact = caller.put(corpus, facts_pb2.FactDraft(content=f"{FACT} Always.", source_id="records.txt")).fact_ids[0]
    assert_agrees(caller, corpus)
    caller.set_status(fact, facts_pb2.FACT_STATUS_DELETED)
    parts = update_parts(
        corpus, REGULATIONS["privacy.txt"].replace("30 days", "31 days"), document_id=ids["privacy.txt"]
    )
    list(caller.documents.UpdateDocument(parts, **caller.options()))
    assert_agrees(caller, corpus)
    caller.remove(corpus, ids["trials.txt"])
    assert_agrees(caller, corpus)
    caller.erase(corpus, "records.txt")
    assert_agrees(caller, corpus)
    for revision in range(1, caller.head(corpus)):
        assert_agrees(caller, corpus, revision)


def test_every_pattern_agrees_on_a_hierarchy_that_a_client_made(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    put(caller, corpus, two_sections())
    assert_agrees(caller, corpus)
    put(caller, corpus, two_sections())
    assert_agrees(caller, corpus)
    assert_agrees(caller, corpus, 1)


def test_records_that_a_trim_leaves_give_the_same_quads(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    ids = caller.add(corpus, *files(dict(list(REGULATIONS.items())[:4]))).ids
    caller.erase(corpus, "trials.txt", purge_now=True)
    caller.remove(corpus, ids["privacy.txt"])
    age(caller.server, corpus, days=40)
    caller.put(corpus, facts_pb2.FactDraft(content=FACT, source_id="minutes"))
    before = source_quads(caller.server, corpus)
    client = caller.server.client(ACME)
    client.update_corpus(corpus, retention_days=30)
    client.trim_corpus(corpus)
    assert assert_agrees(caller, corpus) == before


def test_a_chain_of_quads_leads_from_a_fact_to_its_source(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, File("records.txt", REGULATIONS["records.txt"], metadata={"uri": "https://example.org/r"}))
    pages = source_pages(caller.server, corpus)
    fact = caller.list(corpus)[0]
    chain, node = [], Iri(iri_of("fact", fact.fact_id))
    while True:
        found = walked(pages, QuadPattern(subject=node, predicate=DERIVED_FROM))
        if not found:
            break
        (quad,) = found
        assert isinstance(quad.object, Iri)
        node = quad.object
        chain.append(named_by(node.value))
    assert [step and step.kind for step in chain] == ["chunk", "document", "source"]
    said = {(quad.predicate, quad.object) for quad in walked(pages, QuadPattern(subject=node))}
    assert said == {
        (Iri(RDF_TYPE), Iri(f"{PROV}Entity")),
        (Iri(RDF_TYPE), Iri(f"{NS}Source")),
        (Iri(f"{DC}title"), Literal(caller.list_documents(corpus)[0].title)),
        (Iri(f"{DC}source"), Iri("https://example.org/r")),
    }
    said = {
        quad.predicate: quad.object for quad in walked(pages, QuadPattern(subject=Iri(iri_of("fact", fact.fact_id))))
    }
    assert said[Iri(f"{PROV}value")] == Literal(fact.content)
    offset, length = said[Iri(f"{TG}sourceCharOffset")], said[Iri(f"{TG}sourceCharLength")]
    assert isinstance(offset, Literal)
    assert isinstance(length, Literal)
    start = int(offset.value)
    span = REGULATIONS["records.txt"][start : start + int(length.value)]
    assert " ".join(span.split()) == fact.content


def test_the_chunks_places_make_up_the_whole_document(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    text = "\n\n".join(REGULATIONS.values())
    document = caller.add(corpus, File("all.txt", text)).ids["all.txt"]
    pages = source_pages(caller.server, corpus)
    chunks = walked(pages, QuadPattern(predicate=DERIVED_FROM, object=Iri(iri_of("document", document))))
    end = 0
    for chunk in chunks:
        said = {quad.predicate: quad.object for quad in walked(pages, QuadPattern(subject=chunk.subject))}
        offset, length = said[Iri(f"{TG}charOffset")], said[Iri(f"{TG}charLength")]
        assert isinstance(offset, Literal)
        assert isinstance(length, Literal)
        assert int(offset.value) == end
        end += int(length.value)
    assert len(chunks) > 1
    assert end == len(text)


def test_erased_records_give_no_quads_at_any_revision(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, *files(dict(list(REGULATIONS.items())[:3])))
    caller.put(corpus, facts_pb2.FactDraft(content=FACT, source_id="privacy.txt"))
    before = caller.head(corpus)
    gone = {quad.subject for quad in source_quads(caller.server, corpus) if "privacy" in str(quad)}
    assert len(gone) >= 3, "the source, its document and the fact"
    caller.erase(corpus, "privacy.txt")
    for revision in (before, None):
        plain = assert_agrees(caller, corpus, revision)
        assert plain
        assert not gone & {quad.subject for quad in plain}
        for subject in gone:
            assert walked(source_pages(caller.server, corpus, revision), QuadPattern(subject=subject)) == []


def test_a_page_reads_a_bounded_number_of_records_even_if_few_match(
    caller: ErasingCaller,
) -> None:
    corpus = caller.corpus()
    drafts = [facts_pb2.FactDraft(content=f"{FACT} This is number {n}.", source_id="s") for n in range(600)]
    ids = [*caller.put(corpus, *drafts).fact_ids]
    for fact in ids[:500]:
        caller.update(fact, importance_weight=0.25)
    pages = source_pages(caller.server, corpus)
    pattern = QuadPattern(predicate=Iri(f"{PROV}value"), object=Literal(drafts[-1].content))
    first = pages(pattern, b"", 1_000)
    assert (first.quads, first.following is None) == ([], False), "records of earlier revisions count as reads too"
    assert [quad.subject for quad in walked(pages, pattern)] == [Iri(iri_of("fact", max(ids)))]


def test_a_page_ends_before_it_gets_too_large(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    text = FACT * 100
    caller.put(corpus, *[facts_pb2.FactDraft(content=f"{n} {text}", source_id="s") for n in range(150)])
    pages = source_pages(caller.server, corpus)
    first = pages(QuadPattern(predicate=Iri(f"{PROV}value")), b"", 1_000)
    assert 0 < len(first.quads) < 150
    assert len(walked(pages, QuadPattern(predicate=Iri(f"{PROV}value")))) == 150


@pytest.mark.parametrize(
    "pattern",
    [
        QuadPattern(source=SourceId("records.txt")),
        QuadPattern(graph=""),
        QuadPattern(graph="urn:graph:retrieval"),
        QuadPattern(subject=Iri(iri_of("fact", uuid4()))),
        QuadPattern(subject=Iri("urn:drillcore:fact:no uuid")),
        QuadPattern(subject=Iri("https://example.org/")),
        QuadPattern(subject=Blank("b")),
        QuadPattern(predicate=Iri(f"{PROV}used")),
        QuadPattern(object=Iri(iri_of("envelope", uuid4()))),
        QuadPattern(object=Iri(iri_of("source", "no such source"))),
        QuadPattern(object=Literal("no such text")),
        QuadPattern(predicate=DERIVED_FROM, object=Literal("records.txt"), graph=GRAPH_SOURCE),
    ],
)
def test_patterns_that_no_record_matches_find_nothing(caller: ErasingCaller, pattern: QuadPattern) -> None:
    corpus = caller.corpus()
    caller.add(corpus, *files(dict(list(REGULATIONS.items())[:1])))
    assert walked(source_pages(caller.server, corpus), pattern) == []

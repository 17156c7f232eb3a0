"""Facts of documents through the real server: drawn from them, then kept, stale or deleted as their source changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2, nodes_pb2, sources_pb2, sources_pb2_grpc
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from tests.support.callers.facts import FactCaller
from tests.support.callers.hierarchies import put, two_sections
from tests.support.callers.knowledge import FAILED, File, at_revision, refused, update_parts
from tests.support.servers.running import ACME, OPERATOR, Running, create_tenants, running

ACTIVE, STALE = facts_pb2.FACT_STATUS_ACTIVE, facts_pb2.FACT_STATUS_STALE
DELETED, QUARANTINED = facts_pb2.FACT_STATUS_DELETED, facts_pb2.FACT_STATUS_QUARANTINED
RECORDS = "The operator shall keep the records of every batch for at least seven years after its release."
TRAINING = "Each operator is trained on the procedures of the site before working alone for the first time."
AUDITS = "The quality unit audits every supplier of starting materials once in three years, and without notice."
RULES = f"# Rules of the site\n\n## Article 5 Records\n\n{RECORDS}\n\n## Article 6 Training\n\n{TRAINING}\n"
CHANGED = RULES.replace(TRAINING, AUDITS)


class SiteCaller(FactCaller):
    def source(self, corpus: str, source: str, **fields: Any) -> sources_pb2.Source:
        request = sources_pb2.GetSourceRequest(corpus_id=corpus, source_id=source, **fields)
        return sources_pb2_grpc.SourceServiceStub(self._channel).GetSource(request, **self.options()).source

    def sources(self, corpus: str, **fields: Any) -> list[sources_pb2.ListSourcesResponse]:
        pages, token = [], ""
        while not pages or token:
            request = sources_pb2.ListSourcesRequest(corpus_id=corpus, page_token=token, **fields)
            pages.append(sources_pb2_grpc.SourceServiceStub(self._channel).ListSources(request, **self.options()))
            token = pages[-1].next_page_token
        return pages

    def rules(self, corpus: str, text: str = RULES, **metadata: str) -> str:
        """Adds the document of the source "rules" with this text; returns its id."""
        return self.add(corpus, File("rules.md", text, "rules", metadata=metadata)).ids["rules.md"]

    def by_content(self, corpus: str, **fields: Any) -> dict[str, facts_pb2.Fact]:
        found = self.list(corpus, **fields)
        assert len({fact.content for fact in found}) == len(found)
        return {fact.content: fact for fact in found}


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[SiteCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with SiteCaller(server, ACME) as found:
            yield found
            assert problems(server) == ()


def problems(server: Running) -> tuple[str, ...]:
    """The problems that fsck finds."""
    root, header = open_store(server.engine)
    return Fsck(server.engine, Keyspace(root), server.server.keyring, header.store_id).run().problems


def test_facts_come_with_their_documents_tied_to_chunk_document_and_source(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    document = caller.rules(corpus, source_type="regulatory", region="EU")
    found = caller.by_content(corpus)
    assert set(found) == {RECORDS, TRAINING}
    fact = found[RECORDS]
    assert (fact.source_id, fact.document_id, fact.status, fact.version) == ("rules", document, ACTIVE, 1)
    assert RULES[fact.span.start : fact.span.end] == RECORDS
    chunk = caller.node(fact.chunk_id)
    assert (chunk.chunk.document_id, chunk.chunk.source_id) == (document, "rules")
    assert fact.source_location == "Rules of the site > Article 5 Records"
    assert (fact.importance_weight, fact.metadata) == (0.95, {"source_type": "regulatory", "region": "EU"})
    hits = caller.search(
        "how long are batch records kept?", corpus, filters=facts_pb2.FactFilters(metadata={"region": "EU"})
    )
    assert hits.hits[0].fact.fact_id == fact.fact_id


def test_the_registry_knows_the_source_and_how_many_facts_it_has(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    document = caller.rules(corpus, url="https://www.example.gov/rules")
    source = caller.source(corpus, "rules")
    assert (source.title, source.uri, source.source_type) == (
        "Rules of the site",
        "https://www.example.gov/rules",
        "web",
    )
    assert (source.fact_count, source.version, source.document_id) == (2, 1, document)
    assert source.status == sources_pb2.SOURCE_STATUS_ACTIVE
    assert source.document_hash == caller.document(corpus, document).document.content_hash
    with refused(Reason.SOURCE_NOT_FOUND):
        caller.source(corpus, "other")


def test_an_unknown_source_type_fails_its_document_and_no_other(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    wrong = File("wrong.md", RULES, metadata={"source_type": "rumour"})
    added = caller.add(corpus, wrong, File("right.md", RULES))
    assert added.by_name["wrong.md"].kind == FAILED
    assert "rumour" in added.by_name["wrong.md"].message
    assert {fact.source_id for fact in caller.list(corpus)} == {"right.md"}
    parts = update_parts(corpus, RULES, source_id="right.md", metadata={"source_type": "rumour"})
    with refused(Reason.INVALID_ARGUMENT):
        list(caller.documents.UpdateDocument(parts, **caller.options()))


def test_a_new_version_keeps_the_facts_it_repeats_and_makes_the_rest_stale(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    before = caller.by_content(corpus)
    document = caller.rules(corpus, CHANGED)
    after = caller.by_content(corpus)
    assert set(after) == {RECORDS, TRAINING, AUDITS}
    kept, gone, new = after[RECORDS], after[TRAINING], after[AUDITS]
    assert (kept.fact_id, kept.status, kept.version) == (before[RECORDS].fact_id, ACTIVE, 2)
    assert (kept.document_id, new.document_id) == (document, document)
    assert kept.chunk_id != before[RECORDS].chunk_id
    assert kept.ingested_at == before[RECORDS].ingested_at
    assert (gone.fact_id, gone.status) == (before[TRAINING].fact_id, STALE)
    assert "does not say it" in gone.status_reason
    assert caller.by_content(corpus, as_of=at_revision(1)) == before
    source = caller.source(corpus, "rules")
    assert (source.status, source.version, source.fact_count) == (sources_pb2.SOURCE_STATUS_UPDATED, 2, 3)
    assert caller.source(corpus, "rules", as_of=at_revision(1)).fact_count == 2


def test_a_stale_fact_that_its_source_states_again_is_active_again(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    for text in (RULES, CHANGED, RULES):
        caller.rules(corpus, text)
    found = caller.by_content(corpus)
    first = caller.by_content(corpus, as_of=at_revision(1))
    assert (found[TRAINING].fact_id, found[TRAINING].status) == (first[TRAINING].fact_id, ACTIVE)
    assert found[AUDITS].status == STALE
    hits = caller.search("training before working alone", corpus).hits
    assert (hits[0].fact.fact_id, hits[0].stale) == (first[TRAINING].fact_id, False)


def test_the_expired_time_to_live_of_a_fact_stated_again_begins_anew_swept_or_not(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    before = caller.by_content(corpus)
    for fact in before.values():
        caller.update(fact.fact_id, ttl="PT0.000001S")
    caller.set_status(before[TRAINING].fact_id, STALE)
    caller.rules(corpus, RULES + AUDITS)
    after = caller.by_content(corpus)
    for content in (RECORDS, TRAINING):
        assert after[content].status == ACTIVE
        assert after[content].ingested_at.ToNanoseconds() > before[content].ingested_at.ToNanoseconds()


def test_a_quarantined_fact_stays_quarantined_whatever_its_source_says(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    fact_id = caller.by_content(corpus)[RECORDS].fact_id
    caller.set_status(fact_id, QUARANTINED, reason="it led to wrong answers")
    document = caller.rules(corpus, CHANGED)
    assert (caller.get(fact_id).status, caller.get(fact_id).document_id) == (QUARANTINED, document)
    caller.remove(corpus, document)
    assert caller.get(fact_id).status == QUARANTINED
    assert caller.source(corpus, "rules").fact_count == 1
    caller.rules(corpus)
    assert caller.get(fact_id).status == QUARANTINED
    assert [fact.fact_id for fact in caller.list(corpus) if fact.content == RECORDS] == [fact_id], (
        "no second fact with this content"
    )


def test_facts_are_deleted_with_their_document_and_drawn_anew_when_it_comes_back(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    document = caller.rules(corpus)
    before = caller.by_content(corpus)
    caller.remove(corpus, document)
    assert {fact.status for fact in caller.list(corpus)} == {DELETED}
    assert caller.search("records of a batch", corpus).hits == []
    source = caller.source(corpus, "rules")
    assert (source.status, source.fact_count) == (sources_pb2.SOURCE_STATUS_REMOVED, 0)
    assert caller.by_content(corpus, as_of=at_revision(1)) == before
    caller.rules(corpus)
    active = [fact for fact in caller.list(corpus) if fact.status == ACTIVE]
    assert {fact.content for fact in active} == {RECORDS, TRAINING}
    assert not {fact.fact_id for fact in active} & {fact.fact_id for fact in before.values()}
    assert caller.source(corpus, "rules").fact_count == 2


def test_new_metadata_alone_leaves_every_fact_active(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    chunk = caller.by_content(corpus)[RECORDS].chunk_id
    drafts = [
        facts_pb2.FactDraft(content=AUDITS, source_id="rules"),
        facts_pb2.FactDraft(content=AUDITS, chunk_id=chunk),
    ]
    caller.put(corpus, *drafts)
    before = {fact.fact_id: fact for fact in caller.list(corpus)}
    parts = update_parts(corpus, RULES, source_id="rules", metadata={"source_type": "regulatory"})
    done = list(caller.documents.UpdateDocument(parts, **caller.options()))[-1].done
    after = {fact.fact_id: fact for fact in caller.list(corpus)}
    assert before.keys() == after.keys()
    assert {fact.status for fact in after.values()} == {ACTIVE}
    assert {fact.document_id for fact in after.values()} == {done.document_id, ""}
    assert {fact.importance_weight for fact in after.values() if fact.content != AUDITS} == {0.95}
    assert caller.source(corpus, "rules").source_type == "regulatory"


def test_facts_put_for_a_source_are_stale_when_its_content_changes(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    (fact_id,) = caller.put(corpus, facts_pb2.FactDraft(content=AUDITS + " Always.", source_id="rules")).fact_ids
    assert caller.source(corpus, "rules").fact_count == 3
    caller.rules(corpus, CHANGED)
    assert caller.get(fact_id).status == STALE


def test_a_fact_put_for_a_chunk_has_its_source_and_lies_within_it(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    document = caller.rules(corpus)
    drawn = caller.by_content(corpus)[RECORDS]
    chunk = caller.node(drawn.chunk_id).chunk
    tied = {"content": AUDITS, "chunk_id": drawn.chunk_id}
    spans = [nodes_pb2.Span(start=0, end=chunk.span.end + 1), nodes_pb2.Span(start=9, end=9)]
    for wrong in ({"source_id": "other"}, *({"span": span} for span in spans)):
        with refused(Reason.INVALID_ARGUMENT):
            caller.put(corpus, facts_pb2.FactDraft(**tied, **wrong))
    (fact_id,) = caller.put(corpus, facts_pb2.FactDraft(**tied, span=chunk.span)).fact_ids
    put_one = caller.get(fact_id)
    assert (put_one.source_id, put_one.document_id, put_one.span) == ("rules", document, chunk.span)


def test_facts_are_found_by_document_and_by_chunk(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    first = caller.rules(corpus)
    caller.add(corpus, File("other.md", AUDITS))
    (alone,) = caller.put(corpus, facts_pb2.FactDraft(content=AUDITS, source_id="rules")).fact_ids
    own = [fact for fact in caller.list(corpus) if fact.document_id == first]
    of_chunk = {fact.fact_id for fact in own if fact.chunk_id == own[0].chunk_id}
    for filters, expected in (
        (facts_pb2.FactFilters(document_ids=[first]), {fact.fact_id for fact in own}),
        (facts_pb2.FactFilters(chunk_ids=[own[0].chunk_id]), of_chunk),
        (facts_pb2.FactFilters(document_ids=[first], source_ids=["other.md"]), set()),
        (facts_pb2.FactFilters(source_ids=["rules"]), {alone, *(fact.fact_id for fact in own)}),
    ):
        assert {fact.fact_id for fact in caller.list(corpus, filters=filters)} == expected
        assert {hit.fact.fact_id for hit in caller.search("site", corpus, filters=filters).hits} == expected


def test_an_archived_fact_is_back_when_its_source_says_it_again(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    fact_id = caller.by_content(corpus)[RECORDS].fact_id
    caller.archive(fact_id)
    caller.rules(corpus, CHANGED)
    assert not caller.get(fact_id).archived
    assert fact_id in {hit.fact.fact_id for hit in caller.search("batch records", corpus).hits}


def test_a_stale_fact_is_deleted_with_its_document(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    document = caller.rules(corpus, CHANGED)
    caller.remove(corpus, document)
    assert {fact.status for fact in caller.list(corpus)} == {DELETED}
    assert caller.source(corpus, "rules").fact_count == 0


def test_a_fact_does_not_get_the_id_of_a_raw(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    chunk = caller.list(corpus)[0].chunk_id
    (raw, *_) = caller.node(chunk).child_ids
    for place in (corpus, caller.corpus("other")):
        with refused(Reason.NODE_EXISTS):
            caller.put(place, facts_pb2.FactDraft(fact_id=raw, content=AUDITS, source_id="manual"))
    assert caller.node(raw).id == raw


def test_a_fact_put_for_a_chunk_weighs_as_much_as_the_facts_drawn_from_it(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus, source_type="internal", classification="restricted")
    drawn = caller.list(corpus)[0]
    (fact_id,) = caller.put(corpus, facts_pb2.FactDraft(content=AUDITS, chunk_id=drawn.chunk_id)).fact_ids
    assert caller.get(fact_id).importance_weight == drawn.importance_weight == 0.8


def test_facts_that_are_put_register_their_source(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    (fact_id,) = caller.put(corpus, facts_pb2.FactDraft(content=AUDITS, source_id="a call")).fact_ids
    assert caller.get(fact_id).importance_weight == 0.6
    source = caller.source(corpus, "a call")
    assert (source.version, source.document_id, source.fact_count, source.source_type) == (0, "", 1, "user")
    assert source.status == sources_pb2.SOURCE_STATUS_ACTIVE
    caller.set_status(fact_id, DELETED, reason="wrong")
    assert caller.source(corpus, "a call").fact_count == 0
    caller.add(corpus, File("call.md", RULES, "a call"))
    source = caller.source(corpus, "a call")
    assert (source.version, source.fact_count, source.status) == (1, 2, sources_pb2.SOURCE_STATUS_ACTIVE)


def test_sources_are_listed_in_pages_of_one_revision(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, *[File(f"{n}.md", RULES) for n in range(5)])
    token = caller.sources(corpus, page_size=2)[0].next_page_token
    caller.add(corpus, File("5.md", RULES))
    request = sources_pb2.ListSourcesRequest(corpus_id=corpus, page_size=10, page_token=token)
    rest = sources_pb2_grpc.SourceServiceStub(caller._channel).ListSources(request, **caller.options())
    assert (len(rest.sources), rest.revision) == (3, 1)
    pages = caller.sources(corpus, page_size=4)
    assert [len(page.sources) for page in pages] == [4, 2]
    assert {source.source_id for page in pages for source in page.sources} == {f"{n}.md" for n in range(6)}
    assert {source.fact_count for page in pages for source in page.sources} == {2}


def test_a_hierarchy_that_replaces_documents_deletes_the_facts_of_removed_documents(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    (chunkless,) = caller.put(corpus, facts_pb2.FactDraft(content=AUDITS, source_id="a call")).fact_ids
    put(caller, corpus, two_sections())
    found = {fact.content: fact.status for fact in caller.list(corpus)}
    assert found == {RECORDS: DELETED, TRAINING: DELETED, AUDITS: ACTIVE}
    assert caller.get(chunkless).status == ACTIVE
    assert caller.source(corpus, "rules").fact_count == 0


def test_a_fact_of_a_hierarchys_chunk_is_stale_once_the_chunk_changes(caller: SiteCaller) -> None:
    corpus, made = caller.corpus(), two_sections()
    put(caller, corpus, made)
    chunks = [node.id for node in made.nodes_of("chunk")][:2]
    drafts = [facts_pb2.FactDraft(content=RECORDS, chunk_id=chunk_id) for chunk_id in chunks]
    ids = list(caller.put(corpus, *drafts).fact_ids)
    put(caller, corpus, made)
    assert [caller.get(fact_id).status for fact_id in ids] == [ACTIVE, ACTIVE], "the chunks have the same content again"
    chunk = next(node for node in made.nodes_of("chunk") if node.id == chunks[0])
    raw = next(node for node in made.nodes_of("raw") if node.parent_id == chunks[0])
    del chunk.chunk.quotes[:]
    raw.raw.content = "X" * len(raw.raw.content)
    put(caller, corpus, made)
    assert [caller.get(fact_id).status for fact_id in ids] == [STALE, ACTIVE]


def test_the_history_says_how_many_facts_a_revision_changed(caller: SiteCaller) -> None:
    corpus = caller.corpus()
    caller.rules(corpus)
    caller.rules(corpus, CHANGED)
    found = caller.nodes.GetHistory(nodes_pb2.GetHistoryRequest(corpus_id=corpus), **caller.options())
    assert sorted((revision.revision, revision.facts_changed) for revision in found.revisions) == [(1, 2), (2, 3)]

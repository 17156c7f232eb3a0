"""Documents and nodes through the clients. Each claim holds for both Client and AsyncClient."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import drillcore
from drillcore import AsyncClient, Client, Entity, Level, NewDocument, Reason
from tests.support.servers.in_memory_server import Peer, running

TENANT = uuid.UUID("11111111-1111-1111-1111-111111111111")
CORPUS = uuid.UUID("22222222-2222-2222-2222-222222222222")
TEXTS = {"a.txt": "Keep the audit trail.", "b.txt": "Sign the record.", "c.txt": "Report within 15 days."}

Do = Callable[..., Any]


def sync(address: str, method: str, *args: Any, **options: Any) -> Any:
    with Client(address, tenant_id=TENANT) as client:
        result = getattr(client, method)(*args, **options)
        return list(result) if method.startswith("iter") else result


def asynchronous(address: str, method: str, *args: Any, **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(address, tenant_id=TENANT) as client:
            result = getattr(client, method)(*args, **options)
            return [item async for item in result] if method.startswith("iter") else await result

    return asyncio.run(run())


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A peer with three documents in a corpus."""
    with running() as peer:
        with Client(peer.address) as client:
            client.add_documents(CORPUS, [NewDocument(name, text.encode()) for name, text in TEXTS.items()])
        peer.seen.clear()
        peer.requests.clear()
        yield peer


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def do(request: pytest.FixtureRequest, peer: Peer) -> Do:
    """Calls a method of a client of the peer and returns its result; an iteration is returned as a list."""
    return lambda method, *args, **options: request.param(peer.address, method, *args, **options)


def node_id(peer: Peer, name: str) -> uuid.UUID:
    return uuid.UUID(peer.hierarchy(str(CORPUS)).id(name))


def test_a_master_comes_back_with_summary_findings_and_statistics(do: Do, peer: Peer) -> None:
    node = do("get_node", node_id(peer, "master"))
    assert (node.level, node.parent_id, node.corpus_id, node.revision) == (Level.MASTER, None, CORPUS, 1)
    assert (node.child_ids, node.child_count) == ((node_id(peer, "section"),), 1)
    assert node.content.summary == "All in all."
    assert node.content.statistics == drillcore.Statistics(3, 1, 3, 3, 59, 11)
    finding = node.content.findings[0]
    assert (finding.kind, finding.text, finding.citation.text) == ("obligation", "keep it", TEXTS["a.txt"])
    assert finding.citation.span == drillcore.Span(0, 21)
    assert node.content.processing == drillcore.Processing("built-in", "1", "")


def test_a_section_comes_back_with_title_category_and_entities(do: Do, peer: Peer) -> None:
    content = do("get_node", node_id(peer, "section")).content
    assert isinstance(content, drillcore.SectionContent)
    assert (content.title, content.category, content.document_count) == ("Records", "records", 3)
    assert content.entities == (Entity("regulation", "21 CFR 11"),)


def test_a_chunk_and_its_raw_come_back_with_their_spans_and_document(do: Do, peer: Peer) -> None:
    (chunk,) = do("query", "audit", corpus_ids=[CORPUS]).items
    content = chunk.node.content
    assert isinstance(content, drillcore.ChunkContent)
    assert (content.source_id, content.headings, content.page) == ("a.txt", ("Part A", "a.txt"), 1)
    (raw,) = do("drill_down", chunk.node.id, Level.RAW).items
    assert raw.content == drillcore.RawContent(
        content.document_id, drillcore.Span(0, 21), TEXTS["a.txt"], ("decoded as utf-8",)
    )


def test_an_embedding_comes_only_on_request(do: Do, peer: Peer) -> None:
    chunk = do("query", "audit").items[0].node
    assert do("get_node", chunk.id).content.embedding == ()
    assert do("get_node", chunk.id, with_embedding=True).content.embedding == (0.5, -0.25)


def test_only_a_query_with_text_has_scores(do: Do) -> None:
    assert [hit.score for hit in do("query", "audit").items] == [0.5]
    assert {hit.score for hit in do("query").items} == {None}


def test_a_query_without_hits_still_returns_the_revisions_it_read(do: Do) -> None:
    page = do("query", "nothing like it", corpus_ids=[CORPUS])
    assert (page.items, page.revisions) == ((), {CORPUS: 1})


def test_a_query_sends_every_filter(do: Do, peer: Peer) -> None:
    document, after = uuid.uuid4(), datetime(2026, 1, 2, 3, 4, 5, 678901, timezone(timedelta(hours=2)))
    do(
        "query",
        "text",
        level=Level.SECTION,
        corpus_ids=[CORPUS],
        categories=["records"],
        entities=[Entity("date"), Entity("person", "Ada")],
        document_ids=[document],
        source_ids=["a.txt"],
        created_after=after,
        created_before=after + timedelta(days=1),
        as_of=7,
        page_size=5,
    )
    (request,) = peer.requests
    assert (request.tenant_id, request.corpus_ids, request.level) == (str(TENANT), [str(CORPUS)], 3)
    assert (request.text, request.as_of.revision, request.page_size) == ("text", 7, 5)
    filters = request.filters
    assert (filters.categories, filters.document_ids, filters.source_ids) == (["records"], [str(document)], ["a.txt"])
    assert [(entity.type, entity.value) for entity in filters.entities] == [("date", ""), ("person", "Ada")]
    assert filters.created_after.ToJsonString() == "2026-01-02T01:04:05.678901Z"
    assert filters.created_before.ToJsonString() == "2026-01-03T01:04:05.678901Z"


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("get_node", lambda peer: [node_id(peer, "master")]),
        ("query", lambda _: []),
        ("drill_down", lambda peer: [node_id(peer, "master"), Level.CHUNK]),
        ("roll_up", lambda peer: [[node_id(peer, "section")], Level.MASTER]),
        ("list_documents", lambda _: [CORPUS]),
        ("get_document", lambda peer: [CORPUS, next(iter(peer.hierarchy(str(CORPUS)).texts))]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_read_takes_a_moment(do: Do, peer: Peer, method: str, arguments: Callable[[Peer], list[Any]]) -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    do(method, *arguments(peer), as_of=0)
    do(method, *arguments(peer), as_of=time)
    do(method, *arguments(peer))
    by_revision, by_time, now = peer.requests
    assert (by_revision.as_of.WhichOneof("moment"), by_revision.as_of.revision) == ("revision", 0)
    assert by_time.as_of.time.ToDatetime(UTC) == time
    assert not now.HasField("as_of")


def test_a_time_without_zone_and_an_invalid_level_are_refused_before_any_call(do: Do, peer: Peer) -> None:
    with pytest.raises(ValueError, match="has no zone"):
        do("query", as_of=datetime(2026, 1, 2))
    with pytest.raises(ValueError, match="4 is not a valid Level"):
        do("query", level=4)
    with pytest.raises(ValueError, match="range"):
        do("query", as_of=-1)
    assert peer.seen == []


def test_iterations_go_through_all_pages(do: Do, peer: Peer) -> None:
    assert [hit.node.content.source_id for hit in do("iter_query", page_size=1)] == list(TEXTS)
    raws = do("iter_drill_down", node_id(peer, "master"), Level.RAW, page_size=2)
    assert [raw.content.content for raw in raws] == list(TEXTS.values())
    assert [document.title for document in do("iter_documents", CORPUS, page_size=2)] == list(TEXTS)
    assert [revision.revision for revision in do("iter_history", CORPUS, page_size=1)] == [1]
    assert len(peer.seen) == 3 + 2 + 2 + 1


def test_nodes_roll_up_to_their_ancestors_and_the_common_one(do: Do, peer: Peer) -> None:
    raws = [raw.id for raw in do("iter_drill_down", node_id(peer, "master"), Level.RAW)]
    up = do("roll_up", raws[:2], Level.CHUNK)
    assert [node.content.source_id for node in up.nodes] == ["a.txt", "b.txt"]
    assert (up.common.level, up.revision) == (Level.MASTER, 1)
    assert do("roll_up", raws, Level.SECTION).common.id == node_id(peer, "section")


def test_history_lists_each_revision_of_a_corpus_or_a_node(do: Do, peer: Peer) -> None:
    (revision,) = do("history", CORPUS).items
    assert (revision.revision, revision.by, revision.action, revision.documents_added) == (1, "test", "AddDocuments", 3)
    assert revision.at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert revision.section_ids == (node_id(peer, "section"),)
    assert do("history", node_id=node_id(peer, "section")).items == (revision,)
    assert (peer.requests[-1].corpus_id, peer.requests[-1].node_id) == ("", str(node_id(peer, "section")))


def test_history_needs_either_a_corpus_or_a_node(do: Do, peer: Peer) -> None:
    for arguments in ({}, {"corpus_id": CORPUS, "node_id": CORPUS}):
        with pytest.raises(TypeError, match="either corpus_id or node_id="):
            do("history", **arguments)
    assert peer.seen == []


def test_a_document_comes_with_its_text_only_on_request(do: Do) -> None:
    listed = do("list_documents", CORPUS, page_size=1).items[0]
    assert (listed.source_id, listed.source_version, listed.characters, listed.text) == ("a.txt", 1, 21, None)
    assert do("get_document", CORPUS, listed.id) == listed
    assert do("get_document", CORPUS, listed.id, with_text=True).text == TEXTS["a.txt"]


def test_the_revision_of_a_read_does_not_make_two_equal_nodes_differ(do: Do, peer: Peer) -> None:
    chunk = do("query", "audit").items[0].node
    before = do("get_document", CORPUS, chunk.content.document_id)
    peer.hierarchy(str(CORPUS)).commit("", "Nothing", 0, 0)
    after = do("get_document", CORPUS, chunk.content.document_id)
    assert (before.revision, after.revision) == (1, 2)
    assert before == after


def test_removing_documents_returns_the_revision(do: Do) -> None:
    ids = [document.id for document in do("iter_documents", CORPUS)]
    assert do("remove_documents", CORPUS, ids[:2]) == drillcore.RemoveResult(revision=2, removed=2)
    assert [document.id for document in do("iter_documents", CORPUS)] == ids[2:]


@pytest.mark.parametrize(
    ("method", "arguments", "reason"),
    [
        ("get_node", [uuid.uuid4()], Reason.NODE_NOT_FOUND),
        ("drill_down", [uuid.uuid4(), Level.RAW], Reason.NODE_NOT_FOUND),
        ("remove_documents", [CORPUS, [uuid.uuid4()]], Reason.DOCUMENT_NOT_FOUND),
        ("get_document", [CORPUS, uuid.uuid4()], Reason.DOCUMENT_NOT_FOUND),
    ],
)
def test_a_missing_node_or_document_is_not_found(do: Do, method: str, arguments: list[Any], reason: Reason) -> None:
    with pytest.raises(drillcore.NotFound) as caught:
        do(method, *arguments)
    assert caught.value.reason is reason

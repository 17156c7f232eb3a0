"""Retention: revisions that the policy no longer keeps are trimmed, and reads of them say so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drillcore import AsyncClient, Client, InvalidArgument, NotFound, Reason
from drillcore_proto.v1.nodes_pb2 import AsOf
from drillcore_server.app import keepers as housekeeper
from drillcore_server.kernel import retention
from drillcore_server.kernel.corpus_model import RETENTION_DAYS_MAX
from drillcore_server.storage.ids import CorpusId, TenantId
from drillcore_server.tenancy.trim import Trimmer
from tests.support.callers.knowledge import CHUNK, RAW, SECTION, Caller, File, at_revision, files, info_of, refused
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, Running, create_tenants, running
from tests.support.servers.trees import Tree, assert_whole, walk
from tests.support.stores.aged import age, keys_of, keyspace
from tests.support.stores.stores import wait_until

OLD = ("records.txt", "food.txt")


@pytest.fixture
def caller(server: Running, acme: Client) -> Iterator[Caller]:
    found = Caller(server.address, ACME)
    yield found
    found.close()


@pytest.fixture
def corpus(acme: Client) -> str:
    return str(acme.create_corpus("trials").id)


@pytest.fixture
def grown(server: Running, caller: Caller, corpus: str) -> list[Tree]:
    """The trees of five revisions: the first three became the head 30, 20 and 10 days ago, the others today."""
    trees = []
    ids = caller.add_texts(corpus, {name: REGULATIONS[name] for name in OLD})
    for number, change in enumerate(
        (
            lambda: None,
            lambda: caller.add_texts(corpus, {"aviation.txt": REGULATIONS["aviation.txt"]}),
            lambda: caller.remove(corpus, ids["food.txt"]),
            lambda: caller.add(corpus, File("records.txt", REGULATIONS["records.txt"] + "\nOne clause more.\n")),
            lambda: caller.add(corpus, File("aviation.txt", REGULATIONS["aviation.txt"] + "\nAnother clause.\n")),
        )
    ):
        change()
        trees.append(walk(caller, corpus))
        if number < 3:
            age(server, corpus, 10)
    assert [tree.revision for tree in trees] == [1, 2, 3, 4, 5]
    return trees


def trim(client: Client, corpus: str, days: int) -> int:
    """Sets the policy and trims; returns the oldest remaining revision."""
    client.update_corpus(corpus, retention_days=days)
    done = client.trim_corpus(corpus)
    assert done.finished
    return done.oldest_revision


def test_every_revision_is_kept_by_default_and_on_request(acme: Client, corpus: str) -> None:
    assert acme.get_corpus(corpus).retention_days is None
    assert acme.update_corpus(corpus, retention_days=30).retention_days == 30
    assert acme.update_corpus(corpus, description="other").retention_days == 30
    changed = acme.update_corpus(corpus, keep_everything=True)
    assert (changed.retention_days, changed.version) == (None, 4)
    assert acme.get_corpus(corpus) == changed


@pytest.mark.parametrize("days", [0, RETENTION_DAYS_MAX + 1, 2**32 - 1])
def test_a_policy_of_no_days_or_of_centuries_is_refused(acme: Client, corpus: str, days: int) -> None:
    before = acme.get_corpus(corpus)
    with pytest.raises(InvalidArgument) as caught:
        acme.update_corpus(corpus, retention_days=days)
    assert caught.value.metadata["field"] == "retention_days"
    assert acme.get_corpus(corpus) == before


def test_without_a_policy_nothing_is_trimmed(acme: Client, caller: Caller, corpus: str, grown: list[Tree]) -> None:
    done = acme.trim_corpus(corpus)
    assert (done.oldest_revision, done.records_removed, done.finished) == (0, 0, True)
    for tree in grown:
        assert walk(caller, corpus, tree.revision) == tree


def test_a_trim_leaves_the_head_of_the_first_day_kept_and_all_since_as_they_were(
    acme: Client, caller: Caller, corpus: str, grown: list[Tree]
) -> None:
    """Revision 2 was the head fifteen days ago, though it was made before."""
    acme.update_corpus(corpus, retention_days=15)
    done = acme.trim_corpus(corpus)
    assert (done.oldest_revision, done.finished) == (2, True)
    assert done.records_removed > 0
    for tree in grown[1:]:
        again = walk(caller, corpus, tree.revision)
        assert_whole(again)
        assert again == tree


def test_a_trim_goes_up_to_the_head_at_most(acme: Client, caller: Caller, corpus: str, server: Running) -> None:
    caller.add_texts(corpus, {name: REGULATIONS[name] for name in OLD})
    caller.add_texts(corpus, {"aviation.txt": REGULATIONS["aviation.txt"]})
    tree = walk(caller, corpus)
    age(server, corpus, 400)
    assert trim(acme, corpus, 1) == 2
    assert walk(caller, corpus) == tree
    caller.add(corpus, File("records.txt", REGULATIONS["records.txt"] + "\nOne clause more.\n"))
    assert_whole(walk(caller, corpus))
    assert walk(caller, corpus, 2) == tree


def test_a_policy_longer_than_the_corpus_is_old_trims_nothing(
    acme: Client, caller: Caller, corpus: str, grown: list[Tree]
) -> None:
    assert trim(acme, corpus, 31) == 0
    assert walk(caller, corpus, 1) == grown[0]


def reads(caller: Caller, corpus: str, tree: Tree, as_of: AsOf) -> dict[str, Callable[[], object]]:
    chunk, document = next(iter(tree.chunks)), next(iter(tree.documents))
    return {
        "GetNode": lambda: caller.node(tree.master.id, as_of=as_of),
        "GetNode of a chunk": lambda: caller.node(chunk, as_of=as_of),
        "Query": lambda: caller.query(corpus, level=CHUNK, as_of=as_of),
        "Query by text": lambda: caller.query(corpus, level=SECTION, text="records", as_of=as_of),
        "DrillDown": lambda: caller.below(tree.master.id, RAW, as_of=as_of),
        "RollUp": lambda: caller.roll_up(chunk, target=SECTION, as_of=as_of),
        "GetDocument": lambda: caller.document(corpus, document, as_of),
        "ListDocuments": lambda: caller.list_documents(corpus, as_of=as_of),
    }


def at_time(at: datetime) -> AsOf:
    moment = Timestamp()
    moment.FromDatetime(at)
    return AsOf(time=moment)


def test_every_read_of_a_trimmed_revision_is_refused_and_names_the_oldest_remaining_one(
    acme: Client, caller: Caller, corpus: str, grown: list[Tree]
) -> None:
    assert trim(acme, corpus, 5) == 3
    gone = [at_revision(1), at_revision(2), at_time(datetime.now(UTC) - timedelta(days=15))]
    for as_of in gone:
        for name, read in reads(caller, corpus, grown[4], as_of).items():
            with pytest.raises(grpc.RpcError) as caught:
                read()
            info = info_of(caught.value)
            assert info.reason == Reason.REVISION_TRIMMED.name, name
            assert info.metadata["oldest_revision"] == "3"
            assert caught.value.code() is Reason.REVISION_TRIMMED.code
    for read in reads(caller, corpus, grown[2], at_time(datetime.now(UTC) - timedelta(days=9))).values():
        read()


def test_before_its_first_revision_a_corpus_is_empty_whatever_was_trimmed(
    acme: Client, caller: Caller, corpus: str, grown: list[Tree]
) -> None:
    """Otherwise a query of many corpora as of a time would fail for a corpus that did not exist yet."""
    assert trim(acme, corpus, 5) == 3
    for as_of in (at_revision(0), at_time(datetime.now(UTC) - timedelta(days=99))):
        assert caller.list_documents(corpus, as_of=as_of) == []
        assert caller.query(corpus, level=CHUNK, text="records", as_of=as_of) == []


def test_later_pages_of_a_revision_trimmed_meanwhile_are_refused(
    acme: Client, caller: Caller, corpus: str, grown: list[Tree]
) -> None:
    old = {"as_of": at_revision(2), "page_size": 1}
    listings = {
        "ListDocuments": caller.pages_of_documents(corpus, **old),
        "DrillDown": caller.pages_below(grown[1].master.id, RAW, **old),
        "Query": caller.pages_of_query(corpus, level=CHUNK, **old),
        "Query by text": caller.pages_of_query(corpus, level=CHUNK, text="records", **old),
    }
    for pages in listings.values():
        assert next(pages).next_page_token
    assert trim(acme, corpus, 5) == 3
    for pages in listings.values():
        with refused(Reason.REVISION_TRIMMED):
            next(pages)


def test_the_history_of_a_corpus_lists_every_revision_and_says_which_are_trimmed(
    acme: Client, corpus: str, grown: list[Tree]
) -> None:
    before = acme.history(corpus)
    assert [entry.trimmed for entry in before.items] == [False] * 5
    assert before.oldest_revision == 0
    trim(acme, corpus, 5)
    after = acme.history(corpus)
    assert [(entry.revision, entry.trimmed) for entry in after.items] == [
        (5, False),
        (4, False),
        (3, False),
        (2, True),
        (1, True),
    ]
    assert after.oldest_revision == 3
    for old, new in zip(before.items, after.items, strict=True):
        assert (old.at, old.by, old.request_id, old.section_ids) == (new.at, new.by, new.request_id, new.section_ids)
    assert [entry.revision for entry in acme.iter_history(corpus, page_size=2)] == [5, 4, 3, 2, 1]


def test_the_history_of_a_node_lists_the_revisions_of_its_kept_versions(
    acme: Client, caller: Caller, corpus: str, grown: list[Tree]
) -> None:
    kept = next(chunk for chunk in grown[2].chunks if chunk in grown[0].chunks)
    trim(acme, corpus, 5)
    master = acme.history(node_id=grown[4].master.id)
    assert [(entry.revision, entry.trimmed) for entry in master.items] == [(5, False), (4, False), (3, False)]
    assert master.oldest_revision == 3
    made = acme.history(node_id=kept)
    assert [(entry.revision, entry.trimmed) for entry in made.items][-1] == (1, True)


def test_a_node_that_no_kept_revision_has_is_not_found(
    acme: Client, caller: Caller, corpus: str, grown: list[Tree]
) -> None:
    gone = set(grown[0].chunks) - set(grown[2].chunks)
    assert gone
    assert trim(acme, corpus, 5) == 3
    for chunk in gone:
        for as_of in (None, at_revision(1)):
            with refused(Reason.NODE_NOT_FOUND):
                caller.node(chunk, as_of=as_of)
        with pytest.raises(NotFound):
            acme.history(node_id=chunk)


def test_a_search_finds_the_same_though_its_index_is_older_than_the_oldest_revision(
    acme: Client, caller: Caller, corpus: str, server: Running
) -> None:
    """The index in memory is updated from the revisions since, which is impossible for trimmed revisions."""
    ids = caller.add_texts(corpus, REGULATIONS)
    everything = {hit.node.id for hit in caller.hits(corpus, level=CHUNK, text="records")}
    caller.remove(corpus, ids["food.txt"])
    caller.add(corpus, File("records.txt", "Records are kept for seven years.\n"))
    caller.add(corpus, File("records.txt", "Records are kept for eight years.\n"))
    age(server, corpus, 9)
    assert trim(acme, corpus, 1) == 4
    for level in (CHUNK, SECTION):
        found = [hit.node.id for hit in caller.hits(corpus, level=level, text="records")]
        assert len(found) == len(set(found))
        assert set(found) == {node.id for node in caller.query(corpus, level=level)}
    assert everything - {hit.node.id for hit in caller.hits(corpus, level=CHUNK, text="records")}


def test_a_trim_repeated_under_the_same_request_id_gets_the_first_answer(
    acme: Client, corpus: str, grown: list[Tree]
) -> None:
    acme.update_corpus(corpus, retention_days=15)
    first = acme.trim_corpus(corpus, request_id="one")
    assert first.records_removed > 0
    assert acme.trim_corpus(corpus, request_id="one") == first
    assert acme.trim_corpus(corpus, request_id="two").records_removed == 0
    acme.update_corpus(corpus, hold_reason="a case", retention_days=5)
    assert acme.trim_corpus(corpus, request_id="one") == first


def test_trimmed_revisions_do_not_come_back_with_a_longer_policy(
    acme: Client, caller: Caller, corpus: str, grown: list[Tree]
) -> None:
    assert trim(acme, corpus, 5) == 3
    assert trim(acme, corpus, 25) == 3
    acme.update_corpus(corpus, keep_everything=True)
    assert acme.trim_corpus(corpus).oldest_revision == 3
    with refused(Reason.REVISION_TRIMMED):
        caller.list_documents(corpus, as_of=at_revision(2))


def test_the_next_caller_finishes_a_trim_that_another_caller_began(
    server: Running, acme: Client, caller: Caller, corpus: str, grown: list[Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    acme.update_corpus(corpus, retention_days=5)
    monkeypatch.setattr(retention, "PAGE_ENTRIES", 20)
    tenant, name, now = TenantId(ACME_ID), CorpusId(UUID(corpus)), datetime.now(UTC)
    begun = Trimmer(server.engine, keyspace(server)).trim(tenant, name, now, lambda: True)
    assert (begun.oldest, begun.finished) == (3, False)
    with refused(Reason.REVISION_TRIMMED):
        caller.list_documents(corpus, as_of=at_revision(2))
    acme.update_corpus(corpus, keep_everything=True)
    done = acme.trim_corpus(corpus)
    assert (done.oldest_revision, done.finished) == (3, True)
    assert done.records_removed > 0
    assert walk(caller, corpus, 3) == grown[2]


def test_the_server_trims_every_tenants_corpora_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeper, "_EVERY_S", 0.05)
    with running(tmp_path) as server:
        create_tenants(server.client())
        corpora = []
        for token, tenant in ((ACME, ACME_ID), (GLOBEX, GLOBEX_ID)):
            client, caller = server.client(token), Caller(server.address, token)
            corpus = str(client.create_corpus("trials").id)
            for name in OLD:
                caller.add(corpus, *files({name: REGULATIONS[name]}))
            caller.close()
            age(server, corpus, 3, tenant)
            client.update_corpus(corpus, retention_days=1)
            corpora.append((corpus, keys_of(server, corpus, tenant)))
        for corpus, keys in corpora:
            wait_until(lambda k=keys: server.engine.run(lambda tr: retention.state(tr, k)).trimmed == 2, corpus)  # type: ignore[misc]
        wait_until(lambda: len(trims(server)) == 2, "both are logged")
        for line in trims(server):
            assert line["oldest_revision"] == 2
            assert line["records_removed"] > 0


def trims(server: Running) -> list[dict[str, Any]]:
    return [line for line in server.log_lines() if line["event"] == "trimmed"]


def test_the_async_client_trims_too(server: Running, corpus: str, grown: list[Tree]) -> None:
    async def session() -> None:
        async with AsyncClient(server.address, token=ACME) as client:
            await client.update_corpus(corpus, retention_days=15)
            done = await client.trim_corpus(corpus)
            assert (done.oldest_revision, done.finished) == (2, True)
            assert (await client.history(corpus)).oldest_revision == 2

    asyncio.run(session())

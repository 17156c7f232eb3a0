"""Revisions: each call makes one completely or not at all, and every read can be of an earlier revision."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drillcore import NotFound
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1.nodes_pb2 import AsOf
from drillcore_server.kernel import revise
from tests.support.callers.knowledge import (
    CHUNK,
    MASTER,
    RAW,
    SECTION,
    UPDATED,
    Caller,
    File,
    at_revision,
    files,
    info_of,
    parts,
    refused,
)
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import new_corpus
from tests.support.servers.concurrently import concurrently
from tests.support.servers.running import ACME, Running
from tests.support.servers.trees import Tree, assert_whole, walk
from tests.support.stores.trails import knowledge_keys


def now() -> datetime:
    """A time that no earlier or later revision has. It waits for the clock to advance."""
    at = datetime.now(UTC)
    while datetime.now(UTC) <= at + timedelta(milliseconds=1):
        pass
    return at


def as_of_time(at: datetime) -> AsOf:
    moment = Timestamp()
    moment.FromDatetime(at)
    return AsOf(time=moment)


@pytest.fixture
def grown(library: Caller, corpus: str) -> tuple[list[Tree], list[datetime]]:
    """The trees of four revisions with additions, an update and a removal, and a time at which each was the head."""
    trees, times = [], []
    ids = library.add_texts(corpus, {name: REGULATIONS[name] for name in ("records.txt", "food.txt")})
    for change in (
        lambda: None,
        lambda: library.add_texts(corpus, {"aviation.txt": REGULATIONS["aviation.txt"]}),
        lambda: library.add(corpus, File("records.txt", REGULATIONS["records.txt"] + "\nOne clause more.\n")),
        lambda: library.remove(corpus, ids["food.txt"]),
    ):
        change()
        now()
        times.append(now())
        trees.append(walk(library, corpus))
    assert [tree.revision for tree in trees] == [1, 2, 3, 4]
    return trees, times


def test_every_revision_stays_as_it_was(library: Caller, corpus: str, grown: tuple[list[Tree], list[datetime]]) -> None:
    trees, _ = grown
    for tree in trees:
        assert_whole(tree)
        assert walk(library, corpus, tree.revision) == tree
    assert [len(tree.documents) for tree in trees] == [2, 3, 3, 2]


def reads(library: Caller, corpus: str, tree: Tree, as_of: AsOf) -> dict[str, Any]:
    """The answer of every kind of read at a moment, for nodes of the given tree."""
    chunk = next(iter(tree.chunks))
    document = next(iter(tree.documents))
    return {
        "GetNode": library.node(chunk, as_of=as_of),
        "Query": library.query(corpus, level=CHUNK, as_of=as_of),
        "Query by text": library.query(corpus, level=CHUNK, text="records", as_of=as_of),
        "Query sections by text": library.query(corpus, level=SECTION, text="records", as_of=as_of),
        "DrillDown": library.below(tree.master.id, RAW, as_of=as_of),
        "RollUp": library.roll_up(chunk, target=MASTER, as_of=as_of),
        "GetDocument": library.document(corpus, document, as_of),
        "ListDocuments": library.list_documents(corpus, as_of=as_of),
    }


def test_every_read_is_the_same_by_revision_and_by_time(
    library: Caller, corpus: str, grown: tuple[list[Tree], list[datetime]]
) -> None:
    for tree, at in zip(*grown, strict=True):
        by_revision = reads(library, corpus, tree, at_revision(tree.revision))
        assert reads(library, corpus, tree, as_of_time(at)) == by_revision
        assert {node.id for node in by_revision["Query"]} == set(tree.chunks)
        assert {node.id for node in by_revision["Query by text"]} == set(tree.chunks)
        assert {node.id for node in by_revision["Query sections by text"]} == set(tree.sections)
        assert {node.id for node in by_revision["DrillDown"]} == set(tree.raws)
        assert by_revision["RollUp"].common.master == tree.master.master
        assert by_revision["GetDocument"].revision == tree.revision


def test_the_time_of_a_revision_is_when_it_begins(
    library: Caller, corpus: str, grown: tuple[list[Tree], list[datetime]]
) -> None:
    for revision in library.history(corpus_id=corpus):
        page = next(library.pages_of_documents(corpus, as_of=AsOf(time=revision.at)))
        assert page.revision == revision.revision
        just_before = revision.at.ToDatetime(tzinfo=UTC) - timedelta(microseconds=1)
        page = next(library.pages_of_documents(corpus, as_of=as_of_time(just_before)))
        assert page.revision == revision.revision - 1


def test_a_corpus_is_empty_before_its_first_revision(
    library: Caller, corpus: str, grown: tuple[list[Tree], list[datetime]]
) -> None:
    (first, *_), _ = grown
    for as_of in (at_revision(0), *(as_of_time(datetime(year, 1, 1, tzinfo=UTC)) for year in (1, 1960, 1990))):
        assert library.list_documents(corpus, as_of=as_of) == []
        assert library.query(corpus, level=MASTER, as_of=as_of) == []
        assert library.query(corpus, level=CHUNK, text="records", as_of=as_of) == []
        with refused(Reason.NODE_NOT_FOUND):
            library.node(first.master.id, as_of=as_of)
        with refused(Reason.NODE_NOT_FOUND):
            library.below(first.master.id, RAW, as_of=as_of)
        with refused(Reason.DOCUMENT_NOT_FOUND):
            library.document(corpus, next(iter(first.documents)), as_of)


@pytest.mark.parametrize("revision", [5, 1 << 40, (1 << 48) - 1])
def test_every_read_refuses_a_revision_that_does_not_exist_yet(
    library: Caller, corpus: str, grown: tuple[list[Tree], list[datetime]], revision: int
) -> None:
    tree, as_of = grown[0][-1], at_revision(revision)
    chunk = next(iter(tree.chunks))
    for attempt in (
        lambda: library.node(chunk, as_of=as_of),
        lambda: library.query(corpus, level=CHUNK, as_of=as_of),
        lambda: library.query(corpus, level=CHUNK, text="records", as_of=as_of),
        lambda: library.below(tree.master.id, RAW, as_of=as_of),
        lambda: library.roll_up(chunk, target=MASTER, as_of=as_of),
        lambda: library.document(corpus, next(iter(tree.documents)), as_of),
        lambda: library.list_documents(corpus, as_of=as_of),
    ):
        with refused(Reason.REVISION_NOT_FOUND):
            attempt()


def test_a_number_that_no_revision_can_have_is_refused(library: Caller, corpus: str) -> None:
    for revision in (1 << 48, (1 << 64) - 1):
        with refused(Reason.INVALID_ARGUMENT, Reason.REVISION_NOT_FOUND):
            library.list_documents(corpus, as_of=at_revision(revision))


def test_a_time_in_the_future_means_the_head(
    library: Caller, corpus: str, grown: tuple[list[Tree], list[datetime]]
) -> None:
    for later in (datetime.now(UTC) + timedelta(days=365), datetime(9999, 12, 31, tzinfo=UTC)):
        listed = library.list_documents(corpus, as_of=as_of_time(later))
        assert {document.id for document in listed} == set(grown[0][-1].documents)


def test_a_time_before_the_end_of_a_call_stays_before_its_revision(library: Caller, corpus: str) -> None:
    """A reader during a slow upload saw the old revision, and must see it again when it asks for that time."""
    library.add_texts(corpus, {"a.txt": notice(1)})
    go_on, times = threading.Event(), []

    def requests() -> Iterator[pb.AddDocumentsRequest]:
        for request in parts(corpus, [File("b.txt", notice(2))]):
            yield request
            if request.WhichOneof("part") == "header":
                assert go_on.wait(timeout=20)

    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(library.send, requests())
        now()
        assert library.head(corpus) == 1
        times.append(now())
        go_on.set()
        assert under_way.result(timeout=20).done.revision == 2
    page = next(library.pages_of_documents(corpus, as_of=as_of_time(times[0])))
    assert (page.revision, len(page.documents)) == (1, 1)


def test_the_history_of_a_corpus_is_newest_first(
    library: Caller, corpus: str, grown: tuple[list[Tree], list[datetime]]
) -> None:
    history = library.history(corpus_id=corpus)
    assert [entry.revision for entry in history] == [4, 3, 2, 1]
    assert [entry.action for entry in history] == ["RemoveDocuments", "AddDocuments", "AddDocuments", "AddDocuments"]
    assert [(entry.documents_added, entry.documents_removed) for entry in history] == [(0, 1), (1, 1), (1, 0), (2, 0)]
    assert {entry.by for entry in history} == {"ann@acme"}
    assert len({entry.request_id for entry in history}) == 4
    times = [entry.at.ToDatetime() for entry in history]
    assert times == sorted(times, reverse=True)
    assert library.history(corpus_id=corpus, page_size=1) == history
    assert library.history(corpus_id=corpus, page_size=3) == history


def test_the_history_of_a_node_lists_the_revisions_that_changed_it(
    library: Caller, corpus: str, grown: tuple[list[Tree], list[datetime]]
) -> None:
    trees, _ = grown
    assert [entry.revision for entry in library.history(node_id=trees[0].master.id)] == [4, 3, 2, 1]
    for section in {section_id for tree in trees for section_id in tree.sections}:
        states = [tree.sections.get(section) for tree in trees]
        before = [None, *states[:-1]]
        changed = [tree.revision for tree, old, new in zip(trees, before, states, strict=True) if old != new]
        history = library.history(node_id=section)
        assert [entry.revision for entry in history] == changed[::-1]
        assert all(section in entry.section_ids for entry in history)
    for chunk, raw in ((raw.parent_id, raw.id) for raw in trees[0].raws.values()):
        revisions = [tree.revision for tree in trees if chunk in tree.chunks]
        expected = [revisions[-1] + 1, revisions[0]] if revisions[-1] < 4 else [revisions[0]]
        assert [entry.revision for entry in library.history(node_id=chunk)] == expected
        assert [entry.revision for entry in library.history(node_id=raw)] == expected


def test_a_history_request_names_either_a_corpus_or_a_node(library: Caller, corpus: str) -> None:
    library.add_texts(corpus, {"a.txt": notice(1)})
    with refused(Reason.INVALID_ARGUMENT):
        library.history()
    with refused(Reason.INVALID_ARGUMENT):
        library.history(corpus_id=corpus, node_id=library.master(corpus).id)


def test_page_tokens_of_histories_and_lists_are_valid_in_their_own_listing_only(
    library: Caller, corpus: str, shared: Running, grown: tuple[list[Tree], list[datetime]]
) -> None:
    other_corpus = new_corpus(shared)
    library.add_texts(other_corpus, {"a.txt": notice(1), "b.txt": notice(2)})
    listed = next(library.pages_of_documents(other_corpus, page_size=1)).next_page_token
    with refused(Reason.INVALID_PAGE_TOKEN, field="page_token"):
        library.list_documents(corpus, page_token=listed)
    with refused(Reason.INVALID_PAGE_TOKEN, field="page_token"):
        library.history(corpus_id=other_corpus, page_token=listed)
    for mangled in ("x", listed[:-2], listed * 2):
        with refused(Reason.INVALID_PAGE_TOKEN, field="page_token"):
            library.list_documents(other_corpus, page_token=mangled)


def test_a_list_of_documents_stays_at_its_revision(library: Caller, corpus: str) -> None:
    ids = library.add_texts(corpus, {f"{number}.txt": notice(number) for number in range(7)})
    found = []
    for number, page in enumerate(library.pages_of_documents(corpus, page_size=2)):
        assert page.revision == 1
        found += [document.id for document in page.documents]
        library.add(corpus, File(f"more {number}.txt", notice(30 + number)))
        if number == 0:
            library.remove(corpus, *(document_id for document_id in ids.values() if document_id not in found))
    assert found == sorted(ids.values())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_tree_is_whole_after_changes_in_any_order(library: Caller, corpus: str, seed: int) -> None:
    dice = random.Random(seed)
    texts = {**REGULATIONS, **{f"{number}.txt": notice(number, dice.randint(1, 5)) for number in range(12)}}
    present: dict[str, tuple[str, str]] = {}
    trees = []
    for _ in range(9):
        if present and dice.random() < 0.4:
            gone = dice.sample(sorted(present), dice.randint(1, len(present)))
            library.remove(corpus, *(present.pop(name)[0] for name in gone))
        else:
            chosen = dice.sample(sorted(texts), dice.randint(1, 6))
            sent = {name: texts[name] + dice.choice(["", f"\n\nClause {dice.random()}."]) for name in chosen}
            added = library.add(corpus, *files(sent))
            present |= {name: (added.ids[name], text) for name, text in sent.items()}
        tree = walk(library, corpus)
        trees.append(tree)
        assert_whole(tree)
        assert {document: tree.text(document) for document in tree.documents} == dict(present.values())
    for tree in trees:
        assert walk(library, corpus, tree.revision) == tree


def test_writers_at_the_same_time_lose_nothing(library: Caller, corpus: str) -> None:
    def write(number: int) -> list[int]:
        return [
            library.add(corpus, File(f"{number} {file}.txt", notice(number * 10 + file))).done.revision
            for file in range(3)
        ]

    revisions = [revision for made in concurrently(4, write) for revision in made]
    assert sorted(revisions) == list(range(1, 13))
    tree = walk(library, corpus)
    assert {document.source_id for document in tree.documents.values()} == {
        f"{number} {file}.txt" for number in range(4) for file in range(3)
    }
    assert_whole(tree)
    assert [entry.revision for entry in library.history(corpus_id=corpus)] == list(range(12, 0, -1))


def test_writers_of_one_source_at_the_same_time_leave_one_document(library: Caller, corpus: str) -> None:
    added = concurrently(4, lambda number: library.add(corpus, File("same.txt", notice(number))))
    assert [addition.kinds for addition in added].count([UPDATED]) == 3
    (document,) = library.list_documents(corpus)
    assert document.source_version == 4
    assert_whole(walk(library, corpus))


def test_writers_of_one_content_at_the_same_time_add_it_once(library: Caller, corpus: str) -> None:
    added = concurrently(4, lambda _: library.add(corpus, File("same.txt", notice(1))))
    assert {addition.ids["same.txt"] for addition in added} == {
        document.id for document in library.list_documents(corpus)
    }
    assert {addition.done.revision for addition in added} == {1}


def read_until(done: threading.Event, read: Callable[[], Tree]) -> list[Tree]:
    trees = [read()]
    while not done.is_set():
        trees.append(read())
    return trees


def test_readers_see_whole_revisions_only(shared: Running, corpus: str) -> None:
    """Some revisions are small; others are large and staged in batches."""
    reader, writer, done = Caller(shared.address, ACME), Caller(shared.address, ACME), threading.Event()
    writer.add_texts(corpus, {"a.txt": notice(1)})
    with ThreadPoolExecutor(2) as pool, mock.patch.object(revise, "SMALL_BYTES_MAX", 60_000):
        readers = [pool.submit(read_until, done, lambda: walk(reader, corpus)) for _ in range(2)]
        try:
            for number in range(5):
                count = 12 if number % 2 else 1
                sent = {f"{number} {file}.txt": notice(number * 20 + file, 3) for file in range(count)}
                ids = writer.add_texts(corpus, sent)
                writer.remove(corpus, *list(ids.values())[::2])
        finally:
            done.set()
        trees = [tree for found in readers for tree in found.result(timeout=60)]
    assert len({tree.revision for tree in trees}) > 2, "the readers ran while revisions were made"
    for tree in trees:
        assert_whole(tree)
    by_revision: dict[int, Tree] = {}
    assert all(by_revision.setdefault(tree.revision, tree) == tree for tree in trees)
    reader.close()
    writer.close()


def test_a_large_revision_is_invisible_until_it_is_complete(shared: Running, library: Caller, corpus: str) -> None:
    library.add_texts(corpus, {"a.txt": notice(1)})
    before = walk(library, corpus)
    stage, seen = revise.Reviser._stage, []

    def stage_and_look(self: revise.Reviser, *more: Any) -> bytes:
        hashed = stage(self, *more)
        seen.append((walk(library, corpus), library.query(corpus, level=CHUNK, text="inspector of bridges")))
        return hashed

    large = {f"{number}.txt": notice(number, 12) for number in range(40)}
    with (
        mock.patch.object(revise, "SMALL_BYTES_MAX", 100_000),
        mock.patch.object(revise, "BATCH_BYTES_MAX", 100_000),
        mock.patch.object(revise.Reviser, "_stage", stage_and_look),
    ):
        added = library.add(corpus, *files(large))
    assert len(seen) > 2, "the revision was staged in batches"
    assert all(tree == before for tree, _ in seen)
    assert all({hit.id for hit in hits} == set(before.chunks) for _, hits in seen)
    assert added.done.revision == 2
    tree = walk(library, corpus)
    assert len(tree.documents) == 41
    assert_whole(tree)
    assert walk(library, corpus, 1) == before


def test_a_change_larger_than_a_transaction_is_one_revision(library: Caller, corpus: str) -> None:
    """The change has over 3 MB of writes, with the production limits."""
    staged = []
    stage = revise.Reviser._stage

    def count(self: revise.Reviser, *more: Any) -> bytes:
        staged.append(1)
        return stage(self, *more)

    text = "\n\n".join(notice(number, 4) for number in range(1_100))
    with mock.patch.object(revise.Reviser, "_stage", count):
        added = library.add(corpus, File("large.txt", text), File("small.txt", notice(1)))
    assert len(staged) > 3
    assert added.done.revision == 1
    assert library.text(corpus, added.ids["large.txt"]) == text
    statistics = library.master(corpus).master.statistics
    assert (statistics.documents, statistics.characters) == (2, len(text) + len(notice(1)))
    assert library.remove(corpus, added.ids["large.txt"]).revision == 2
    assert_whole(walk(library, corpus))


def test_a_failure_in_the_middle_of_staging_leaves_nothing(library: Caller, corpus: str, shared: Running) -> None:
    library.add_texts(corpus, {"a.txt": notice(1)})
    before, keys_before = walk(library, corpus), knowledge_keys(shared)
    stage = revise.Reviser._stage

    def fail(self: revise.Reviser, keys: Any, claim: Any, number: int, batch: Any) -> bytes:
        if number == 2:
            raise RuntimeError("a defect")
        return stage(self, keys, claim, number, batch)

    large = files({f"{number}.txt": notice(number, 12) for number in range(40)})
    with (
        mock.patch.object(revise, "SMALL_BYTES_MAX", 100_000),
        mock.patch.object(revise, "BATCH_BYTES_MAX", 100_000),
        mock.patch.object(revise.Reviser, "_stage", fail),
        refused(Reason.INTERNAL),
    ):
        library.add(corpus, *large)
    assert walk(library, corpus) == before
    left_over = knowledge_keys(shared) - keys_before
    assert left_over < 60, "staged writes are swept, except the keys of sources"
    assert library.add(corpus, *large).done.revision == 2
    assert_whole(walk(library, corpus))


def test_an_upload_that_is_broken_off_leaves_nothing(library: Caller, corpus: str, shared: Running) -> None:
    library.add_texts(corpus, {"a.txt": notice(1)})
    go_on = threading.Event()

    def requests() -> Iterator[pb.AddDocumentsRequest]:
        yield from list(parts(corpus, [File("whole.txt", notice(2)), File("half.txt", notice(3)[:100])]))[:-1]
        go_on.wait(timeout=20)

    calls_before = len(shared.logged_calls())
    under_way = library.documents.AddDocuments(requests(), **library.options("broken off"))
    assert next(under_way).progress.documents_prepared == 1
    under_way.cancel()
    go_on.set()
    with pytest.raises(grpc.RpcError):
        list(under_way)
    while not (lines := [call for call in shared.logged_calls()[calls_before:] if call["request_id"] == "broken off"]):
        threading.Event().wait(0.005)
    assert [line["outcome"] for line in lines] == [Reason.CANCELLED.name], "a cancelled call is not logged as a defect"
    assert library.head(corpus) == 1
    assert [document.source_id for document in library.list_documents(corpus)] == ["a.txt"]


def test_a_refusal_in_the_middle_of_a_stream_leaves_nothing(library: Caller, corpus: str) -> None:
    whole = list(parts(corpus, [File("a.txt", notice(1)), File("b.txt", notice(2))]))
    unknown = pb.AddDocumentsRequest.FromString(b"\xfa\x7f\x05hello")
    in_header = pb.AddDocumentsRequest(header=pb.DocumentHeader.FromString(b"\xfa\x7f\x05hello"))
    for wrong in (unknown, in_header):
        with refused(Reason.UNKNOWN_FIELD, field="2047"):
            library.send([*whole[:-1], wrong, whole[-1]])
    assert (library.head(corpus), library.list_documents(corpus)) == (0, [])


def test_the_nodes_of_a_deleted_corpus_are_not_found(shared: Running, library: Caller, corpus: str) -> None:
    ids = library.add_texts(corpus, {"a.txt": notice(1)})
    tree = walk(library, corpus)
    with shared.client(ACME) as client:
        client.delete_corpus(corpus)
        with pytest.raises(NotFound):
            client.get_corpus(corpus)
    every = [tree.master.id, *tree.sections, *tree.chunks, *tree.raws]
    for attempt in (
        *(
            lambda node_id=node_id, as_of=as_of: library.node(node_id, as_of=as_of)
            for node_id in every
            for as_of in (None, at_revision(1))
        ),
        lambda: library.below(tree.master.id, RAW),
        lambda: library.roll_up(next(iter(tree.raws)), target=MASTER),
        lambda: library.history(node_id=tree.master.id),
        lambda: library.history(corpus_id=corpus),
        lambda: library.query(corpus, level=CHUNK),
        lambda: library.query(corpus, level=CHUNK, text="reports"),
        lambda: library.list_documents(corpus),
        lambda: library.document(corpus, ids["a.txt"]),
        lambda: library.remove(corpus, ids["a.txt"]),
        lambda: library.add(corpus, File("b.txt", notice(2))),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            attempt()
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert info_of(caught.value).reason in {Reason.NODE_NOT_FOUND.name, Reason.CORPUS_NOT_FOUND.name}

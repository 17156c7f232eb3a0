"""Vector indexes after an erasure: no erased vector is left, and all other vectors are found at every revision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_proto.v1 import sources_pb2
from drillcore_server.facts.index import FactIndexes
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.vectors.index_keeper import IndexKeeper
from drillcore_server.vectors.index_snapshots import IndexName, IndexSnapshots
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import VectorLog
from tests.facts.test_fact_index import MODEL, SMALL, found, index, number_of, put, tend, vectors
from tests.support.callers.communities import CommunityCaller, fact_of, planted, topic_drafts
from tests.support.callers.knowledge import CHUNK, File, at_revision
from tests.support.servers.running import ACME, OPERATOR, Running, create_tenants, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, vectors=SMALL) as found:
        create_tenants(found.client(OPERATOR))
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[CommunityCaller]:
    with CommunityCaller(server, ACME) as found:
        yield found


def erase(caller: CommunityCaller, corpus: str, source: str) -> None:
    request = sources_pb2.EraseSourceRequest(corpus_id=corpus, source_id=source)
    caller.sources.EraseSource(request, **caller.options())


def everything(log: VectorLog) -> list[np.ndarray]:
    """All vectors of a log and of its graph."""
    assert log.graph is not None
    in_graph = log.graph._vectors()
    return [log.units(np.arange(log.size)), in_graph]


def saved_log(caller: CommunityCaller, path: Path, kind: str) -> VectorLog:
    """A saved log, as the next server would read it."""
    server = caller.server.server
    snapshots = IndexSnapshots(path / "indexes", server.keyring, SMALL, server.log)
    loaded = snapshots.read(IndexName(number_of(caller), kind, 1))
    assert loaded is not None
    of_any: VectorIndex[UUID] = loaded[1]
    return of_any.log


def assert_without(log: VectorLog, rows: list[list[float]]) -> None:
    for row in np.array(rows, np.float32):
        for stored in everything(log):
            assert (stored @ row).max() < 0.999, "an erased vector is still there"


def test_former_vectors_of_an_erased_source_are_in_no_later_snapshot(caller: CommunityCaller, tmp_path: Path) -> None:
    """These are vectors of facts that were changed, deleted or archived before. No search found them any more."""
    corpus, rows, fresh = caller.corpus(), vectors(360), vectors(1, seed=2)
    put(caller, corpus, rows[:300])
    erased = put(caller, corpus, rows[300:], "leaflet")
    found(caller, corpus, rows[0])
    tend(caller)
    said = "This is what the fact of the leaflet says from now on."
    caller.update(erased[0], content=said, embedding=fresh[0], embedding_model=MODEL)
    caller.set_status(erased[1], pb.FACT_STATUS_DELETED, reason="it is old")
    caller.archive(erased[2])
    found(caller, corpus, rows[0])
    erase(caller, corpus, "leaflet")
    found(caller, corpus, rows[0])
    caller.server.server.indexes.facts.save_all()
    assert_without(saved_log(caller, tmp_path, "facts"), rows[300:] + fresh)


def test_saving_an_index_first_removes_erased_vectors_from_the_graph(caller: CommunityCaller, tmp_path: Path) -> None:
    """A server does this when it stops before its background thread removed them."""
    corpus, rows = caller.corpus(), vectors(360)
    put(caller, corpus, rows[:300])
    put(caller, corpus, rows[300:], "leaflet")
    server = caller.server.server
    snapshots = IndexSnapshots(tmp_path / "indexes", server.keyring, SMALL, server.log)
    indexes = FactIndexes(caller.server.engine, SMALL, IndexKeeper(server.log), snapshots)
    index(caller, indexes)
    indexes.tend(IndexName(number_of(caller), "facts", 1), lambda: False)
    erase(caller, corpus, "leaflet")
    index(caller, indexes)
    indexes.save_all()
    assert_without(saved_log(caller, tmp_path, "facts"), rows[300:])


def test_a_source_erased_while_an_index_is_saved_is_not_in_the_saved_index(
    caller: CommunityCaller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds at any moment: the key is read first, so the saved index is of a later revision or unreadable."""
    corpus, rows = caller.corpus(), vectors(360)
    put(caller, corpus, rows[:300])
    put(caller, corpus, rows[300:], "leaflet")
    found(caller, corpus, rows[0])
    key = IndexSnapshots.key

    def erasing_before(self: IndexSnapshots, name: IndexName) -> KeyNumber:
        monkeypatch.setattr(IndexSnapshots, "key", key)
        erase(caller, corpus, "leaflet")
        return key(self, name)

    monkeypatch.setattr(IndexSnapshots, "key", erasing_before)
    tend(caller)
    assert_without(saved_log(caller, tmp_path, "facts"), rows[300:])


def test_the_next_search_removes_erased_vectors_from_the_graph(caller: CommunityCaller) -> None:
    corpus, rows = caller.corpus(), vectors(360)
    put(caller, corpus, rows[:300])
    put(caller, corpus, rows[300:], "leaflet")
    keeper = IndexKeeper(caller.server.server.log)
    indexes = FactIndexes(caller.server.engine, SMALL, keeper)
    index(caller, indexes)
    indexes.tend(IndexName(number_of(caller), "facts", 1), lambda: False)
    keeper._waiting.clear()
    assert not index(caller, indexes).is_exact
    assert not keeper._waiting
    erase(caller, corpus, "leaflet")
    log = index(caller, indexes).log
    ((_, name),) = keeper._waiting
    indexes.tend(name, lambda: False)
    assert_without(log, rows[300:])


def test_states_from_before_a_rebuild_keep_no_erased_vectors(caller: CommunityCaller) -> None:
    corpus, rows = caller.corpus(), vectors(1_300)
    ids = put(caller, corpus, rows[:600]) + put(caller, corpus, rows[600:1_200])
    put(caller, corpus, rows[1_200:], "leaflet")
    found(caller, corpus, rows[0])
    tend(caller)
    for start in range(0, 300, 100):
        old = pb.SetFactStatusRequest(fact_ids=ids[start : start + 100], status=pb.FACT_STATUS_DELETED, reason="old")
        caller.facts.SetFactStatus(old, **caller.options())
        found(caller, corpus, rows[0])
    tend(caller)
    erase(caller, corpus, "leaflet")
    found(caller, corpus, rows[0])
    (history,) = caller.server.server.indexes.facts._histories.values()
    logs = {id(state.log): state.log for state in history._states.values()}
    for log in logs.values():
        assert (log.units(np.arange(log.size)) @ np.array(rows[1_200:], np.float32).T).max() < 0.999
    assert set(found(caller, corpus, rows[0], limit=1_000, as_of=at_revision(2))) <= set(ids)


def test_vectors_of_documents_that_were_removed_before_are_in_no_later_snapshot(
    caller: CommunityCaller, tmp_path: Path
) -> None:
    corpus = caller.corpus()
    texts = [f"Rule {n} of the harbour says that boat {n * 7} leaves the quay at {n} o'clock." for n in range(130)]
    caller.add(corpus, *(File(f"{n}.txt", text, f"rule {n}") for n, text in enumerate(texts)))
    caller.add(corpus, File("secret.txt", "The violin of the baron is hidden in the cellar of the mill.", "leaflet"))
    (document,) = [document.id for document in caller.list_documents(corpus) if document.source_id == "leaflet"]
    chunk = next(node for node in caller.query(corpus, level=CHUNK) if node.chunk.source_id == "leaflet")
    row = list(caller.node(chunk.id, with_embedding=True).chunk.embedding)
    caller.query(corpus, level=CHUNK, text="boat")
    chunks = caller.server.server.indexes.chunks
    chunks.tend(IndexName(number_of(caller), "chunks", 1), lambda: False)
    caller.remove(corpus, document)
    caller.query(corpus, level=CHUNK, text="boat")
    erase(caller, corpus, "leaflet")
    caller.query(corpus, level=CHUNK, text="boat")
    chunks.save_all()
    assert_without(saved_log(caller, tmp_path, "chunks"), [row])
    assert len(caller.query(corpus, level=CHUNK, text="boat")) == 130


def test_a_revision_with_facts_that_were_erased_since_is_still_searched(caller: CommunityCaller) -> None:
    corpus, rows = caller.corpus(), vectors(30)
    first = put(caller, corpus, rows[:10])
    assert set(found(caller, corpus, rows[0], limit=30)) == set(first)
    put(caller, corpus, rows[10:20], "leaflet")
    last = put(caller, corpus, rows[20:])
    erase(caller, corpus, "leaflet")
    for revision, expected in ((3, {*first, *last}), (2, {*first}), (1, {*first})):
        assert set(found(caller, corpus, rows[0], limit=30, as_of=at_revision(revision))) == expected


def test_indexes_of_earlier_revisions_from_before_an_erasure_are_dropped(caller: CommunityCaller) -> None:
    corpus, rows = caller.corpus(), vectors(30)
    first = put(caller, corpus, rows[:10])
    erased = put(caller, corpus, rows[10:20], "leaflet")
    put(caller, corpus, rows[20:])
    indexes = caller.server.server.indexes.facts
    assert set(found(caller, corpus, rows[0], limit=30, as_of=at_revision(2))) == {*first, *erased}
    (before,) = indexes._earlier.values()
    erase(caller, corpus, "leaflet")
    assert set(found(caller, corpus, rows[0], limit=30, as_of=at_revision(2))) == {*first}
    (after,) = indexes._earlier.values()
    assert (len(before), len(after)) == (20, 10)


def test_a_fact_that_is_put_again_after_its_erasure_is_found(caller: CommunityCaller) -> None:
    """This holds even if no search came in between, so that the index still knows the same vector from before."""
    corpus, rows = caller.corpus(), vectors(20)
    put(caller, corpus, rows[1:])
    said = "This fact comes from a leaflet that is erased and printed again."
    draft = pb.FactDraft(fact_id=str(UUID(int=7)), content=said, source_id="leaflet", embedding=rows[0])
    (fact_id,) = caller.put(corpus, draft, embedding_model=MODEL).fact_ids
    assert found(caller, corpus, rows[0], limit=1) == [fact_id]
    erase(caller, corpus, "leaflet")
    caller.put(corpus, draft, embedding_model=MODEL)
    assert found(caller, corpus, rows[0], limit=1) == [fact_id]


def test_communities_of_a_revision_are_listed_though_a_member_was_erased_since(caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    caller.plant(corpus, *topic_drafts(salmon=9, turbine=7))
    caller.recompute(corpus)
    caller.update(str(fact_of("turbine", 6)), importance_weight=0.1)
    caller.plant(corpus, *planted("orchard", 5))
    erase(caller, corpus, "about turbine")
    fact = str(fact_of("salmon", 0))
    label = caller.get(fact).community_label
    for revision in (2, 3, 4):
        assert caller.get(fact, as_of=at_revision(revision)).community_label == label
        assert [community.size for community in caller.all_communities(corpus, as_of=at_revision(revision))] == [9]

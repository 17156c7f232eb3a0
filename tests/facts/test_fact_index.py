"""The index of facts through the real server, with settings at which a few hundred facts already have a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from drillcore_fdb.engine import Transaction
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_server.facts import store as fact_store
from drillcore_server.facts.blocks import FACTS_MAX, block_of
from drillcore_server.facts.checks import SavedIndexes
from drillcore_server.facts.index import FactIndex, FactIndexes, FactVectors
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.corpus_store import CORPORA
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, FactId, RecordId, Revision, TenantId
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.store import open_store
from drillcore_server.vectors.index_keeper import IndexKeeper
from drillcore_server.vectors.index_snapshots import IndexName, IndexSnapshots, SavedAt
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.stored_vectors import packed, row_of
from drillcore_server.vectors.vector_log import Row
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import at_revision
from tests.support.servers.running import ACME, ACME_ID, OPERATOR, create_tenants, running
from tests.support.stores.fact_blocks import edit_vectors

SMALL = VectorSettings(exact_below=100, tail_max=20, build_threads=1)
MODEL = "a model of the tests"
DIMENSIONS = 16


def vectors(count: int, seed: int = 1) -> list[list[float]]:
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSIONS))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).tolist()


@contextmanager
def serving(path: Path, settings: VectorSettings = SMALL) -> Iterator[FactCaller]:
    with running(path, vectors=settings) as server, FactCaller(server, ACME) as found:
        yield found


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[FactCaller]:
    with serving(tmp_path) as found:
        create_tenants(found.server.client(OPERATOR))
        yield found


def put(caller: FactCaller, corpus: str, rows: Sequence[Sequence[float]], source: str = "manual") -> list[str]:
    drafts = [
        pb.FactDraft(
            content=f"This is the fact of number {place} among many others here.", source_id=source, embedding=row
        )
        for place, row in enumerate(rows)
    ]
    return list(caller.put(corpus, *drafts, embedding_model=MODEL).fact_ids)


def found(caller: FactCaller, corpus: str, row: Sequence[float], **fields: object) -> list[str]:
    request = pb.SearchFactsRequest(corpus_ids=[corpus], vector=row, embedding_model=MODEL, **fields)  # type: ignore[arg-type]
    return [hit.fact.fact_id for hit in caller.facts.SearchFacts(request, **caller.options()).hits]


def is_exact(caller: FactCaller, corpus: str, **fields: object) -> bool:
    row = vectors(1)[0]
    request = pb.SearchFactsRequest(corpus_ids=[corpus], vector=row, embedding_model=MODEL, **fields)  # type: ignore[arg-type]
    return caller.facts.SearchFacts(request, **caller.options()).exact


def tend(caller: FactCaller) -> None:
    """Runs the background work on indexes to its end."""
    caller.server.server.indexes.facts.tend(IndexName(number_of(caller), "facts", 1), lambda: False)


def number_of(caller: FactCaller) -> CorpusNumber:
    return corpus_of(caller).number


def corpus_of(caller: FactCaller) -> Corpus:
    """The record of the only corpus."""
    keys = Keyspace(open_store(caller.server.engine)[0])
    ((corpus, _),) = caller.server.engine.run(lambda tr: list(CORPORA.scan(tr, keys.corpora(TenantId(ACME_ID)))))
    return corpus


def keys_of(caller: FactCaller) -> CorpusKeys:
    return Keyspace(open_store(caller.server.engine)[0]).of_corpus(number_of(caller))


def index(caller: FactCaller, indexes: FactIndexes | None = None) -> FactIndex:
    """The index at the head, from the server's own indexes or from others."""
    server, keys, corpus = caller.server.server, keys_of(caller), corpus_of(caller)

    def work(tr: Transaction) -> FactIndex:
        view = CorpusAtRevision(tr.snapshot, corpus, keys, SealedRecords(server.keyring), revisions.head(tr, keys))
        return (indexes or server.indexes.facts).at(view)

    return caller.server.engine.run(work)


def saved(path: Path) -> list[Path]:
    return sorted((path / "indexes").glob("*"))


def test_a_graph_that_is_missing_is_asked_for_by_every_search(caller: FactCaller) -> None:
    """The first search may not finish it, since reading very many facts takes long."""
    put(caller, caller.corpus(), vectors(200))
    keeper = IndexKeeper(caller.server.server.log)
    indexes = FactIndexes(caller.server.engine, SMALL, keeper)
    for _ in range(2):
        index(caller, indexes)
        assert keeper._waiting
        keeper._waiting.clear()


def test_additions_are_found_by_the_next_search_and_removals_are_not(caller: FactCaller) -> None:
    corpus, rows = caller.corpus(), vectors(300)
    ids = put(caller, corpus, rows)
    assert found(caller, corpus, rows[7], limit=1) == ids[7:8]
    tend(caller)
    assert not is_exact(caller, corpus)
    assert is_exact(caller, corpus, exact=True)
    assert found(caller, corpus, rows[7], limit=1) == ids[7:8]
    fresh = vectors(1, seed=2)
    (added,) = put(caller, corpus, fresh)
    assert found(caller, corpus, fresh[0], limit=1) == [added]
    caller.set_status(ids[7], pb.FACT_STATUS_QUARANTINED, reason="it is wrong")
    caller.set_status(added, pb.FACT_STATUS_DELETED, reason="it is old")
    for row, gone in ((rows[7], ids[7]), (fresh[0], added)):
        for exact in (False, True):
            hits = found(caller, corpus, row, limit=20, exact=exact)
            assert len(hits) == 20
            assert gone not in hits


def test_a_stale_fact_stays_where_it_is_and_a_changed_one_moves(caller: FactCaller) -> None:
    corpus, rows = caller.corpus(), vectors(300)
    ids = put(caller, corpus, rows)
    tend(caller)
    caller.set_status(ids[3], pb.FACT_STATUS_STALE, reason="its time is over")
    assert found(caller, corpus, rows[3], limit=1) == ids[3:4]
    assert index(caller).log.size == 300, "nothing had to be added for a change of status"
    fresh = vectors(1, seed=3)[0]
    caller.update(
        ids[4], content="This is what the fact of number four says from now on.", embedding=fresh, embedding_model=MODEL
    )
    assert found(caller, corpus, fresh, limit=1) == ids[4:5]
    assert found(caller, corpus, rows[4], limit=1, as_of=at_revision(1)) == ids[4:5]
    assert found(caller, corpus, fresh, limit=1, as_of=at_revision(1)) != ids[4:5]


def test_a_search_finds_no_fact_that_only_a_wrong_index_has(caller: FactCaller) -> None:
    """The index only says where to look. Search results always come from the store."""
    corpus, rows = caller.corpus(), vectors(20)
    ids = put(caller, corpus, rows)
    caller.set_status(ids[0], pb.FACT_STATUS_DELETED, reason="it is old")
    caller.set_status(ids[1], pb.FACT_STATUS_QUARANTINED, reason="it is wrong")
    caller.archive(ids[2])
    right = index(caller)
    (history,) = caller.server.server.indexes.facts._histories.values()
    strange = {FactId(UUID(int=7)): rows[3]} | {FactId(UUID(ids[place])): rows[place] for place in range(3)}
    wrong = right.changed({fact: row_of(packed(row)) for fact, row in strange.items()})
    history.keep(Revision(caller.head(corpus)), wrong)
    assert len(index(caller)) == 21
    assert set(found(caller, corpus, rows[0], limit=30)) == set(ids[3:])


def test_more_changes_than_one_read_takes_are_all_followed(caller: FactCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, rows = caller.corpus(), vectors(60)
    first = put(caller, corpus, rows[:20])
    assert len(index(caller)) == 20
    second = put(caller, corpus, rows[20:])
    for fact_id in first[:5]:
        caller.set_status(fact_id, pb.FACT_STATUS_DELETED, reason="it is old")
    monkeypatch.setattr(fact_store, "_FEED_ENTRIES", 1)
    assert set(map(str, index(caller).ids())) == {*first[5:], *second}


def test_an_earlier_revision_is_searched_as_it_was(caller: FactCaller) -> None:
    corpus, rows = caller.corpus(), vectors(260)
    first = put(caller, corpus, rows[:120])
    second = put(caller, corpus, rows[120:])
    for fact_id in first[:40]:
        caller.set_status(fact_id, pb.FACT_STATUS_DELETED, reason="it is old")
    tend(caller)
    assert set(found(caller, corpus, rows[0], limit=200, as_of=at_revision(1))) == set(first)
    assert set(found(caller, corpus, rows[0], limit=300, as_of=at_revision(2))) == {*first, *second}
    assert set(found(caller, corpus, rows[0], limit=300)) == {*first[40:], *second}


def test_an_earlier_moment_of_many_corpora_is_read_once_for_each(
    caller: FactCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more corpora than kept indexes of earlier revisions."""
    corpora, rows, read = [caller.corpus(name) for name in ("one", "two", "three", "four")], vectors(8), []
    first = [put(caller, corpus, rows[place : place + 1])[0] for place, corpus in enumerate(corpora)]
    (moment,) = (entry.at for entry in caller.history(corpus_id=corpora[-1]))
    for corpus in corpora:
        put(caller, corpus, rows[4:])
    load = FactVectors.load

    def counted(self: FactVectors, snapshot: BatchedReads, model: int) -> Iterator[tuple[FactId, Row]]:
        read.append(snapshot.keys)
        return load(self, snapshot, model)

    monkeypatch.setattr(FactVectors, "load", counted)
    request = pb.SearchFactsRequest(corpus_ids=corpora, vector=rows[0], embedding_model=MODEL, as_of={"time": moment})
    answer = caller.facts.SearchFacts(request, **caller.options())
    assert {hit.fact.fact_id for hit in answer.hits} == set(first)
    assert answer.exact
    assert len(read) == len(corpora)


def test_facts_of_a_filter_are_found_in_the_graph_and_outside(caller: FactCaller) -> None:
    corpus, rows = caller.corpus(), vectors(600)
    many, few = put(caller, corpus, rows[:550], "manual"), put(caller, corpus, rows[550:], "leaflet")
    tend(caller)
    for source, own in (("manual", many), ("leaflet", few)):
        hits = found(caller, corpus, rows[3], limit=30, filters=pb.FactFilters(source_ids=[source]))
        assert len(hits) == 30
        assert set(hits) <= set(own)


def test_a_server_starts_from_its_snapshot_and_follows_from_there(tmp_path: Path) -> None:
    rows, fresh = vectors(300), vectors(2, seed=2)
    with serving(tmp_path) as caller:
        create_tenants(caller.server.client(OPERATOR))
        corpus = caller.corpus()
        ids = put(caller, corpus, rows)
        assert not saved(tmp_path)
        found(caller, corpus, rows[0])
        tend(caller)
        (path,) = saved(tmp_path)
    with serving(tmp_path, VectorSettings(exact_below=10_000)) as caller:
        caller.set_status(ids[0], pb.FACT_STATUS_DELETED, reason="it is old")
        (added,) = put(caller, corpus, fresh[:1])
    with serving(tmp_path) as caller:
        assert found(caller, corpus, fresh[0], limit=1) == [added]
        state = index(caller)
        assert state.log.graph is not None
        assert state.log.graph.count == 300, "the saved graph is used"
        assert set(map(str, state.ids())) == {*ids[1:], added}
        assert not [line for line in caller.server.log_lines() if "discarded" in line["event"]]
        (second,) = put(caller, corpus, fresh[1:])
        assert found(caller, corpus, fresh[1], limit=1) == [second]
        written = path.stat().st_mtime_ns
    assert path.stat().st_mtime_ns > written, "a server that stops saves its indexes"


def test_a_damaged_snapshot_is_built_anew_and_the_log_says_so(tmp_path: Path) -> None:
    rows = vectors(300)
    with serving(tmp_path) as caller:
        create_tenants(caller.server.client(OPERATOR))
        corpus = caller.corpus()
        ids = put(caller, corpus, rows)
        found(caller, corpus, rows[0])
        tend(caller)
    (path,) = saved(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with serving(tmp_path) as caller:
        assert found(caller, corpus, rows[9], limit=1) == ids[9:10]
        (line,) = [line for line in caller.server.log_lines() if "discarded" in line["event"]]
        assert (line["level"], line["index"]) == ("warning", path.stem)
        tend(caller)
        assert not index(caller).is_exact
        assert saved(tmp_path) == [path]


def test_a_snapshot_of_a_later_revision_than_the_readers_is_left_alone(caller: FactCaller, tmp_path: Path) -> None:
    """Servers may share a folder, so a reader's transaction may have begun before the saved revision."""
    corpus, rows = caller.corpus(), vectors(300)
    put(caller, corpus, rows[:150])
    server, keys, own = caller.server.server, keys_of(caller), corpus_of(caller)
    snapshots = IndexSnapshots(tmp_path / "indexes", server.keyring, SMALL, server.log)

    def read_late(tr: Transaction) -> FactIndex:
        view = CorpusAtRevision(tr.snapshot, own, keys, SealedRecords(server.keyring), revisions.head(tr, keys))
        if not saved(tmp_path):
            put(caller, corpus, rows[150:])
            found(caller, corpus, rows[0])
            tend(caller)
        return FactIndexes(caller.server.engine, SMALL, snapshots=snapshots).at(view)

    assert len(caller.server.engine.run(read_late)) == 150
    assert saved(tmp_path)


def test_a_snapshot_of_another_history_of_the_store_is_not_used(tmp_path: Path) -> None:
    """This happens after a restore: the revision has the same number but another content."""
    rows = vectors(300)
    with serving(tmp_path) as caller:
        create_tenants(caller.server.client(OPERATOR))
        corpus = caller.corpus()
        put(caller, corpus, rows)
        found(caller, corpus, rows[0])
        tend(caller)
        keys = keys_of(caller)
        record = caller.server.engine.run(lambda tr: revisions.get(tr, keys, revisions.head(tr, keys)))
        assert record is not None
    with serving(tmp_path) as caller:
        altered = replace(record, audit_id=RecordId(UUID(int=1)))
        caller.server.engine.run(lambda tr: revisions.REVISION.write(tr, keys.revision(record.revision), altered))
        assert len(found(caller, corpus, rows[0])) == 10
        (line,) = [line for line in caller.server.log_lines() if "discarded" in line["event"]]
        assert "no such revision" in line["reason"]


def test_an_index_with_many_removed_facts_is_rebuilt_while_it_is_searched(caller: FactCaller) -> None:
    corpus, rows = caller.corpus(), vectors(1_200)
    ids = put(caller, corpus, rows[:600]) + put(caller, corpus, rows[600:])
    found(caller, corpus, rows[0])
    tend(caller)
    before = index(caller).log
    for start in range(0, 400, 100):
        request = pb.SetFactStatusRequest(
            fact_ids=ids[start : start + 100], status=pb.FACT_STATUS_DELETED, reason="old"
        )
        caller.facts.SetFactStatus(request, **caller.options())
    found(caller, corpus, rows[0])
    tend(caller)
    state = index(caller)
    assert state.log is not before
    assert state.log.size == len(state) == 800
    assert not state.is_exact
    assert set(map(str, state.ids())) == set(ids[400:])
    assert found(caller, corpus, rows[500], limit=1) == ids[500:501]


def test_two_servers_on_one_store_see_each_others_facts_at_once(caller: FactCaller) -> None:
    """The second server has its own indexes, which follow the store at each search."""
    corpus, rows = caller.corpus(), vectors(200)
    put(caller, corpus, rows)
    other_indexes = FactIndexes(caller.server.engine, SMALL)
    assert len(index(caller, other_indexes)) == 200
    fresh = vectors(1, seed=5)[0]
    (added,) = put(caller, corpus, [fresh])
    ((nearest, score),) = index(caller, other_indexes).search(np.array(fresh, np.float32), 1)
    assert (str(nearest), round(score, 3)) == (added, 1)
    caller.set_status(added, pb.FACT_STATUS_DELETED, reason="it is old")
    assert nearest not in index(caller, other_indexes)


def problems(caller: FactCaller, path: Path) -> list[str]:
    """The problems of vectors and indexes that fsck finds."""
    root, header = open_store(caller.server.engine)
    saved_indexes = SavedIndexes(path / "indexes", SMALL)
    report = Fsck(caller.server.engine, Keyspace(root), caller.server.server.keyring, header.store_id, saved_indexes)
    return [problem for problem in report.run().problems if "vector" in problem or "index" in problem]


@pytest.fixture
def filled(caller: FactCaller) -> list[str]:
    """The ids of three hundred facts, whose index is saved."""
    ids = put(caller, caller.corpus(), vectors(300))
    index(caller)
    tend(caller)
    return ids


def test_fsck_proves_that_facts_and_vectors_are_the_same_set(
    caller: FactCaller, filled: list[str], tmp_path: Path
) -> None:
    caller.set_status(filled[0], pb.FACT_STATUS_DELETED, reason="it is old")
    caller.set_status(filled[1], pb.FACT_STATUS_QUARANTINED, reason="it is wrong")
    assert not problems(caller, tmp_path)
    keys, engine = keys_of(caller), caller.server.engine
    sealed = SealedRecords(caller.server.server.keyring)
    lost, deleted = FactId(UUID(filled[2])), FactId(UUID(filled[0]))
    short, wrong_model = FactId(UUID(filled[-1])), FactId(UUID(filled[FACTS_MAX]))
    assert len({block_of(fact) for fact in (deleted, short, wrong_model)}) == 3

    def swapped(vectors: Mapping[FactId, bytes]) -> Mapping[FactId, bytes]:
        return {fact: vector for fact, vector in vectors.items() if fact != lost} | {deleted: vectors[lost]}

    def shortened(vectors: Mapping[FactId, bytes]) -> Mapping[FactId, bytes]:
        return {fact: vector[: DIMENSIONS // 2] for fact, vector in vectors.items()}

    def damage(tr: Transaction) -> None:
        edit_vectors(tr, keys, sealed, deleted, swapped)
        edit_vectors(tr, keys, sealed, short, shortened)
        edit_vectors(tr, keys, sealed, wrong_model, lambda vectors: vectors, new_model=9)

    engine.run(damage)
    told = problems(caller, tmp_path)
    for expected in (
        f"fact {lost} has no vector",
        f"there is a vector for {deleted}, which is missing or deleted",
        f"the vector of fact {short} has the wrong length",
        f"the vectors of block {block_of(wrong_model)} are of model 9, which the corpus does not have",
    ):
        assert any(expected in problem for problem in told), expected


def test_fsck_compares_saved_indexes_with_the_store(caller: FactCaller, filled: list[str], tmp_path: Path) -> None:
    state, name = index(caller), IndexName(number_of(caller), "facts", 1)
    keyring = caller.server.server.keyring
    snapshots = IndexSnapshots(tmp_path / "indexes", keyring, SMALL, caller.server.server.log)
    loaded: tuple[SavedAt, FactIndex] | None = snapshots.read(name)
    assert loaded is not None
    lost, moved, strange = FactId(UUID(filled[5])), FactId(UUID(filled[6])), FactId(UUID(int=5))
    row = row_of(packed(vectors(1, seed=9)[0]))
    snapshots.save(name, loaded[0], state.changed({lost: None, moved: row, strange: row}), snapshots.key(name))
    put(caller, caller.get(filled[0]).corpus_id, vectors(3, seed=4))
    told = problems(caller, tmp_path)
    assert len(told) == 3
    for expected in (f"lacks {lost}", f"has another vector for {moved}", f"has {strange}, which the store lacks"):
        assert any(expected in problem for problem in told), expected


def test_an_erasure_discards_the_snapshot_and_the_next_snapshot_has_nothing_of_the_source(tmp_path: Path) -> None:
    rows = vectors(360)
    with serving(tmp_path) as caller:
        create_tenants(caller.server.client(OPERATOR))
        corpus = caller.corpus()
        kept, erased = put(caller, corpus, rows[:300]), put(caller, corpus, rows[300:], "leaflet")
        found(caller, corpus, rows[0])
        tend(caller)
        (path,) = saved(tmp_path)
        server, name = caller.server, IndexName(number_of(caller), "facts", 1)
        snapshots = IndexSnapshots(path.parent, server.server.keyring, SMALL, server.server.log)
        assert snapshots.read(name) is not None
        copied = path.read_bytes()
        server.client(ACME).erase_source(corpus, "leaflet", reason="asked for")
        assert saved(tmp_path) == []
        path.write_bytes(copied)  # as if restored from a backup
        with pytest.raises(KeyErased):
            snapshots.read(name)
        assert not set(erased) & set(found(caller, corpus, rows[310], limit=300))
    with serving(tmp_path) as caller:
        snapshots = IndexSnapshots(path.parent, caller.server.server.keyring, SMALL, caller.server.server.log)
        loaded: tuple[SavedAt, FactIndex] | None = snapshots.read(name)
        assert loaded is not None
        log = loaded[1].log
        assert set(map(str, loaded[1].ids())) == set(kept)
        assert log.graph is not None
        in_graph = log.graph._vectors()
        for row in np.array(rows[300:], np.float32):
            for stored in (log.units(np.arange(log.size)), in_graph):
                assert (stored @ row).max() < 0.999, "an erased vector is still there"
        assert found(caller, corpus, rows[5], limit=1) == kept[5:6]

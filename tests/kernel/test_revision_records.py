"""Records of revisions: the head and the times of a corpus, claims, and the staging and sweeping of writes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.tuples import Subspace
from drillcore_server.kernel import revise, revisions
from drillcore_server.kernel.revisions import Claim, RevisionRecord
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import (
    CorpusNumber,
    DocumentId,
    NodeId,
    PrincipalId,
    RecordId,
    RequestId,
    Revision,
    SourceId,
)
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.sealed import SealedRecords
from tests.support.stores.keyspaces import keyspace_below
from tests.support.stores.stores import opened

KEYS = keyspace_below(b"r").of_corpus(CorpusNumber(7))
OTHERS = keyspace_below(b"r").of_corpus(CorpusNumber(8))
START = datetime(2026, 1, 1, tzinfo=UTC)
NODE = NodeId(UUID(int=5))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path) as engine:
        yield engine


def record(number: int, at: datetime, documents: int = 0) -> RevisionRecord:
    added = tuple(DocumentId(UUID(int=document)) for document in range(documents))
    return RevisionRecord(
        Revision(number),
        at,
        PrincipalId("me"),
        RequestId(f"r{number}"),
        "AddDocuments",
        added,
        (),
        (NODE,),
        RecordId(NODE),
    )


def publish(engine: EmbeddedEngine, number: int, at: datetime, documents: int = 0) -> None:
    engine.run(lambda tr: revisions.publish(tr, KEYS, record(number, at, documents)))


def at_time(engine: EmbeddedEngine, at: datetime) -> Revision:
    return engine.run(lambda tr: revisions.at_time(tr, KEYS, at))


def test_a_corpus_begins_at_revision_0_and_publishing_moves_only_its_own_head(engine: EmbeddedEngine) -> None:
    assert engine.run(lambda tr: revisions.head(tr, KEYS)) == 0
    for number in (1, 2, 3):
        publish(engine, number, START)
        assert engine.run(lambda tr: revisions.head(tr, KEYS)) == number
    assert engine.run(lambda tr: revisions.head(tr, OTHERS)) == 0
    assert engine.run(lambda tr: revisions.get(tr, OTHERS, Revision(1))) is None


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_revision_that_does_not_follow_the_head_is_not_published(engine: EmbeddedEngine, number: int) -> None:
    publish(engine, 1, START)
    with pytest.raises(AssertionError):
        publish(engine, number, START)
    assert engine.run(lambda tr: revisions.head(tr, KEYS)) == 1


def test_a_time_leads_to_the_revision_that_was_the_head_then(engine: EmbeddedEngine) -> None:
    for number in (1, 2, 3):
        publish(engine, number, START + timedelta(hours=number))
    tick = timedelta(microseconds=1)
    assert at_time(engine, START) == 0
    for number in (1, 2, 3):
        assert at_time(engine, START + timedelta(hours=number) - tick) == number - 1
        assert at_time(engine, START + timedelta(hours=number)) == number
    assert at_time(engine, START + timedelta(days=9)) == 3


def test_a_clock_that_goes_back_does_not_move_revisions_back(engine: EmbeddedEngine) -> None:
    publish(engine, 1, START + timedelta(hours=2))
    publish(engine, 2, START)
    publish(engine, 3, START + timedelta(hours=1))
    found = engine.run(lambda tr: list(revisions.between(tr, KEYS, Revision(0), Revision(3))))
    assert [revision.at for revision in found] == [START + timedelta(hours=2)] * 3
    assert at_time(engine, START + timedelta(hours=2)) == 3
    assert at_time(engine, START + timedelta(hours=1)) == 0


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_any_time_may_be_asked_for(engine: EmbeddedEngine, year: int) -> None:
    publish(engine, 1, START)
    assert at_time(engine, datetime(year, 1, 1, tzinfo=UTC)) == (1 if year > 2026 else 0)


def test_a_range_of_revisions_excludes_its_start_and_includes_its_end_even_for_large_numbers(
    engine: EmbeddedEngine,
) -> None:
    for number in range(1, 6):
        publish(engine, number, START, documents=6_000 * (number == 3))
    found = engine.run(lambda tr: list(revisions.between(tr, KEYS, Revision(1), Revision(4))))
    assert found == [record(2, START), record(3, START, 6_000), record(4, START)]
    assert engine.run(lambda tr: revisions.get(tr, KEYS, Revision(3))) == record(3, START, 6_000)
    assert engine.run(lambda tr: list(revisions.between(tr, KEYS, Revision(4), Revision(4)))) == []


def test_a_claim_is_kept_renewed_and_cleared(engine: EmbeddedEngine) -> None:
    claim = Claim(UUID(int=1), Revision(1), START)
    assert engine.run(lambda tr: revisions.get_claim(tr, KEYS)) is None
    engine.run(lambda tr: revisions.put_claim(tr, KEYS, claim))
    assert engine.run(lambda tr: revisions.get_claim(tr, KEYS)) == claim
    assert engine.run(lambda tr: revisions.get_claim(tr, OTHERS)) is None
    engine.run(lambda tr: revisions.clear_claim(tr, KEYS))
    assert engine.run(lambda tr: revisions.get_claim(tr, KEYS)) is None


def test_a_claim_is_expired_after_its_lease_and_not_before() -> None:
    claim = Claim(UUID(int=1), Revision(1), START)
    assert not claim.is_expired(START)
    assert claim.is_expired(START + timedelta(microseconds=1))


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[SealedRecords]:
    with opened(tmp_path / "keyring") as engine:
        keyring = Keyring(engine, Subspace(b"k"), bytes(32))
        keyring.numbers(CorpusNumber(7), [SourceId("s")])
        yield SealedRecords(keyring)


def dump(engine: EmbeddedEngine) -> dict[bytes, bytes]:
    return engine.run(lambda tr: dict(tr.range(b"", b"\xff")))


@pytest.mark.parametrize("revision", [1, 0xFF, 0x100, 0xFFFF])
def test_sweeping_removes_staged_writes_and_nothing_else(
    engine: EmbeddedEngine, sealed: SealedRecords, revision: int
) -> None:
    """The neighbours stay too: the revisions before and after, and keys that differ in their last bit."""
    dead = Revision(revision)
    writes = [
        Write(KEYS.master(), b"x" * 200_000),
        Write(KEYS.chunk(NODE), b"sealed", sealed._keyring.numbers(CorpusNumber(7), [SourceId("s")])[0]),
        Write(KEYS.parent(NODE), None),
        Write(b"plain", b"locator", versioned=False),
    ]
    neighbours = [Write(KEYS.chunk(NodeId(UUID(int=NODE.int + step))), b"kept") for step in (-1, 1)]
    for staged in (dead - 1, dead, dead + 1):
        kept = neighbours if staged == dead else [*neighbours, *writes[:3]]
        engine.run(lambda tr, r=staged, k=kept: [written.apply(tr, Revision(r), sealed) for written in k])  # type: ignore[misc]
    before = dump(engine)
    for number, write in enumerate(writes):
        engine.run(lambda tr, n=number, w=write: revisions.stage(tr, KEYS, dead, n, [w.place(dead)]))  # type: ignore[misc]
        engine.run(lambda tr, w=write: w.apply(tr, dead, sealed))  # type: ignore[misc]
    assert dump(engine) != before
    swept = 0
    while engine.run(lambda tr: revisions.sweep_batch(tr, KEYS)):
        swept += 1
    assert swept == len(writes)
    assert dump(engine) == before


def test_batches_contain_all_writes_in_order_and_stay_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", 1_000)
    writes = [Write(b"%d" % number, bytes(size)) for number, size in enumerate([0, 100, 900, 5_000, 0, 0, 0, 0, 0, 1])]
    batches = list(revise._batches(writes))
    assert [write for batch in batches for write in batch] == writes
    for batch in batches:
        assert len(batch) == 1 or sum(write.size_bytes for write in batch) <= 1_000
    assert list(revise._batches([])) == []


def test_a_revision_just_small_enough_for_one_transaction_fits_it(
    engine: EmbeddedEngine, sealed: SealedRecords
) -> None:
    """The worst case: only removals with the longest keys, whose size is estimated lowest."""
    count = revise.SMALL_BYTES_MAX // Write(b"", None).size_bytes
    writes = [
        Write(KEYS.entity(bytes(8), number.to_bytes(16, "big"), NodeId(UUID(int=number))), None)
        for number in range(count)
    ]

    def work(tr: revisions.Transaction) -> int:
        for write in writes:
            write.apply(tr, Revision(1), sealed)
        return tr.approximate_size()

    assert engine.run(work) < 9_000_000

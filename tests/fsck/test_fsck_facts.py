"""fsck finds facts that do not agree with their indexes, their chunks or the source registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drillcore_fdb.engine import Transaction
from drillcore_server.facts.blocks import block_of
from drillcore_server.facts.model import Fact
from drillcore_server.facts.state_hash import STATE, StateHashes, StoredState
from drillcore_server.facts.store import FactReader
from drillcore_server.hierarchy.store import SOURCE, HierarchyReader
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.writes import fact_locator
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusNumber, NodeId, Revision, SourceId, Span, new_uuid
from tests.support.stores.archive import Archive, opened_archive, text_of
from tests.support.stores.fact_blocks import edit_fact

HEAD = Revision(1)
SOURCE_ID = SourceId("a")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        archive.add({SOURCE_ID: text_of("fishing", 1)})
        assert archive.fsck().problems == ()
        yield archive


def view(archive: Archive, tr: Transaction) -> CorpusAtRevision:
    return CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, HEAD)


def first_fact(archive: Archive) -> Fact:
    return archive.engine.run(lambda tr: next(FactReader(view(archive, tr)).facts()))


def rewrite(archive: Archive, tr: Transaction, key: bytes, value: bytes) -> None:
    (number,) = archive.keyring.numbers(archive.corpus.number, [SOURCE_ID])
    archive.sealed.put(tr, key, HEAD, number, value)


def change(archive: Archive, tr: Transaction, fact: Fact, **fields: Any) -> None:
    edit_fact(tr, archive.keys, archive.sealed, fact.id, lambda stored: replace(stored, **fields))


def recount(archive: Archive, tr: Transaction, by: int) -> None:
    source = HierarchyReader(view(archive, tr)).source(SOURCE_ID)
    assert source is not None
    key = archive.keys.source(archive.keyring.hashed(SOURCE_ID))
    rewrite(archive, tr, key, SOURCE.encode(replace(source, fact_count=source.fact_count + by)))


def unindex(archive: Archive, tr: Transaction, fact: Fact) -> None:
    versioned.remove(tr, archive.keys.source_block(archive.keyring.hashed(SOURCE_ID), block_of(fact.id)), HEAD)


def relocate(archive: Archive, tr: Transaction, fact: Fact) -> None:
    locator = archive.keyspace.locator(archive.corpus.tenant_id, NodeId(block_of(fact.id)))
    tr.set(locator, fact_locator(CorpusNumber(archive.corpus.number + 1)))


def tie_to_nobody(archive: Archive, tr: Transaction, fact: Fact) -> None:
    versioned.put(tr, archive.keys.chunk_block(NodeId(new_uuid()), block_of(fact.id)), HEAD, b"")


def expire(archive: Archive, tr: Transaction, fact: Fact) -> None:
    versioned.put(tr, archive.keys.fact_expiry(fact.ingested_at, fact.id), HEAD, b"")


def keep_state(archive: Archive, tr: Transaction, state_hash: str) -> None:
    STATE.write(tr, archive.keys.state_hash(), StoredState(HEAD, state_hash, 1))


def test_a_right_state_hash_is_accepted(archive: Archive) -> None:
    hashes = StateHashes(archive.engine)
    archive.engine.run(lambda tr: hashes.at(view(archive, tr)))
    assert archive.engine.run(lambda tr: STATE.read(tr, archive.keys.state_hash())) is not None
    assert archive.fsck().problems == ()


DAMAGES: dict[str, tuple[Callable[[Archive, Transaction, Fact], None], str]] = {
    "another state hash": (lambda a, tr, _fact: keep_state(a, tr, "0" * 64), "the stored state hash"),
    "a lost index entry": (unindex, "indexes lack"),
    "an entry of a chunk that leads nowhere": (tie_to_nobody, "leads nowhere"),
    "an expiry of a fact that has none": (expire, "leads nowhere"),
    "a locator to another corpus": (relocate, "locator of fact"),
    "another content": (lambda a, tr, fact: change(a, tr, fact, content="else"), "is not what was written"),
    "another chunk's place": (lambda a, tr, fact: change(a, tr, fact, span=Span(10**6, 10**6 + 5)), "does not hold it"),
    "a chunk that is not there": (lambda a, tr, fact: change(a, tr, fact, chunk=NodeId(new_uuid())), "is missing"),
    "a count that is too high": (lambda a, tr, _: recount(a, tr, 1), "there are"),
    "another source": (lambda a, tr, fact: change(a, tr, fact, source=SourceId("b")), "not registered"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_fact_that_disagrees_is_found(archive: Archive, damage: str) -> None:
    make, said = DAMAGES[damage]
    fact = first_fact(archive)
    archive.engine.run(lambda tr: make(archive, tr, fact))
    assert any(said in problem for problem in archive.fsck().problems)

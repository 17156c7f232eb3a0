"""Edits facts in the store itself, at the head. No caller may do this."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drillcore_fdb.engine import Transaction
from drillcore_server.facts.blocks import (
    FactBlock,
    block_of,
    decode_block,
    decode_vectors,
    encode_block,
    encode_vectors,
)
from drillcore_server.facts.model import Fact
from drillcore_server.kernel import revisions
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import FactId
from drillcore_server.storage.sealed import SealedRecords, sealed_by


def edit_fact(
    tr: Transaction, keys: CorpusKeys, sealed: SealedRecords, fact: FactId, change: Callable[[Fact], Fact]
) -> None:
    block, head = block_of(fact), revisions.head(tr, keys)
    key = keys.fact_block(block)
    stored = versioned.get(tr, key, head)
    assert stored is not None
    facts = decode_block(block, sealed.opened(stored).value).facts
    edited = FactBlock(block, tuple(change(found) if found.id == fact else found for found in facts))
    sealed.put(tr, key, head, sealed_by(stored.value), encode_block(edited))


def edit_vectors(
    tr: Transaction,
    keys: CorpusKeys,
    sealed: SealedRecords,
    fact: FactId,
    change: Callable[[Mapping[FactId, bytes]], Mapping[FactId, bytes]],
    model: int = 1,
    new_model: int = 1,
) -> None:
    """Edits the vectors of the block of a fact. They are written as those of `new_model`."""
    block, head = block_of(fact), revisions.head(tr, keys)
    stored = versioned.get(tr, keys.block_vectors(model, block), head)
    assert stored is not None
    edited = encode_vectors(change(decode_vectors(block, sealed.opened(stored).value)))
    sealed.put(tr, keys.block_vectors(new_model, block), head, sealed_by(stored.value), edited, is_dense=True)

"""Destroys the keys of erased sources: right after the commit of an erasure, or when a server starts the next time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Engine, Options, RangeRead, Transaction
from drillcore_server.documents.document_planner import DocumentPlanner
from drillcore_server.erasure.purge import Purger
from drillcore_server.facts import store as facts
from drillcore_server.facts.model import FactChange
from drillcore_server.kernel import erasures
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.erasures import Erasure
from drillcore_server.kernel.revise import Reviser
from drillcore_server.storage import erasure_notes
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber
from drillcore_server.storage.keyring import KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace

_OPTIONS: Final = Options(idempotent=True)
_BLOCKS_AT_ONCE: Final = 500
"""Blocks of erased facts that one transaction looks at."""


@dataclass(frozen=True, slots=True)
class Eraser:
    """The parts of the server that erasures use."""

    reviser: Reviser
    documents: DocumentPlanner
    purger: Purger
    purge_days: int
    """Days from an erasure until its bytes are removed."""

    def destroy_keys(self, corpus: Corpus, erasure: Erasure, at: datetime) -> Erasure:
        """Destroys the keys of an erasure, and returns it as it is stored then."""
        reviser = self.reviser
        return _destroy_keys_of(reviser.engine, reviser.keys, reviser.keyring, corpus.number, erasure, at)

    def as_stored(self, corpus: Corpus, erasure: Erasure) -> Erasure:
        """The erasure in its current state, which shows whether its keys were destroyed and its bytes purged."""
        keys = self.reviser.keys.of_corpus(corpus.number)
        return self.reviser.engine.run(lambda tr: erasures.get(tr, keys, erasure.number)) or erasure


def destroy_keys(engine: Engine, keyspace: Keyspace, keyring: Keyring, number: CorpusNumber, at: datetime) -> int:
    """Destroys the keys of erasures in a corpus, and returns how many erasures had keys left.

    May be re-run, also by several servers at once. Keys that came back with a restored keyring are destroyed again.
    """
    keys = keyspace.of_corpus(number)
    found = engine.run(lambda tr: list(erasures.of_corpus(tr.snapshot, keys)))
    back = keyring.in_use_again(number, {key: scope for erasure in found for key, scope in _keys_of(erasure).items()})
    left = [erasure for erasure in found if erasure.destroyed_at is None or not back.isdisjoint(erasure.key_numbers)]
    for erasure in left:
        _destroy_keys_of(engine, keyspace, keyring, number, erasure, at)
    return len(left)


def _keys_of(erasure: Erasure) -> dict[KeyNumber, bytes]:
    return {KeyNumber(key.number): key.scope for key in erasure.keys}


def _destroy_keys_of(
    engine: Engine, keyspace: Keyspace, keyring: Keyring, number: CorpusNumber, erasure: Erasure, at: datetime
) -> Erasure:
    """Destroys the keys of an erasure, removes the access counters of the erased facts, and notes that it is done."""
    keys = keyspace.of_corpus(number)
    keyring.destroy(number, _keys_of(erasure), at)
    stored = erasure
    following: bytes | None = keys.fact_changes_of(erasure.revision).begin
    while following is not None:
        stored, following = engine.run(lambda tr, b=following: _finish(tr, keys, keyring, erasure, b, at), _OPTIONS)  # type: ignore[misc]
    return stored


def _finish(
    tr: Transaction, keys: CorpusKeys, keyring: Keyring, erasure: Erasure, begin: bytes, at: datetime
) -> tuple[Erasure, bytes | None]:
    """Removes access counters of facts that the feed of changes names, from a place on. Notes the erasure at the end.

    Empties this server's caches of what was erased. Returns the erasure as it is stored, and where to go on.
    """
    feed = begin, keys.fact_changes_of(erasure.revision).end
    needed = [keys.erasure_notes.count, keys.erasure(erasure.number)]
    tr.snapshot.read_ahead(needed, [RangeRead(*feed, limit=_BLOCKS_AT_ONCE)])
    erasure_notes.follow(tr.snapshot, keys.erasure_notes, keyring)
    (page,) = tr.snapshot.range_many([feed], limit=_BLOCKS_AT_ONCE)
    changes = (changed for key, value in page for changed in facts.feed_changes(key, value))
    facts.forget_accesses(tr, keys, (changed.fact for changed in changes if FactChange.ERASED in changed.change))
    stored = erasures.get(tr, keys, erasure.number) or erasure
    if len(page) == _BLOCKS_AT_ONCE:
        return stored, page[-1][0] + b"\0"
    if stored.destroyed_at is None:
        stored = replace(stored, destroyed_at=at)
        erasures.put(tr, keys, stored)
    return stored, None


def finish_erasures(
    engine: Engine, keyspace: Keyspace, keyring: Keyring, at: datetime
) -> Iterator[tuple[CorpusNumber, int | Exception]]:
    """Destroys keys that a dead server left, or that came back with a restored keyring.

    Yields each corpus with the number of erasures that had keys left, or the exception that stopped its turn.
    """
    noted = engine.run(lambda tr: {note.corpus for note in erasure_notes.noted(tr.snapshot, keyspace.erasure_notes)})
    for number in sorted(noted):
        try:
            yield number, destroy_keys(engine, keyspace, keyring, number, at)
        except Exception as error:
            yield number, error

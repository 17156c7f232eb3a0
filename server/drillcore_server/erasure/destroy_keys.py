"""Destroys the keys of erased sources: right after the commit of an erasure, or when a server starts the next time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Engine, Options, Transaction
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
from drillcore_server.storage.ids import CorpusNumber, FactId, Revision
from drillcore_server.storage.keyring import KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace

_OPTIONS: Final = Options(idempotent=True)
_FACTS_AT_ONCE: Final = 2_000
"""Facts that are read in one transaction."""


@dataclass(frozen=True, slots=True)
class Eraser:
    """The parts of the server that erasures use."""

    reviser: Reviser
    documents: DocumentPlanner
    purger: Purger
    purge_days: int
    """Days from an erasure until its bytes are removed."""

    def destroy_keys(self, corpus: Corpus, at: datetime) -> None:
        """Destroys the keys of all erasures of a corpus, if they are not destroyed yet."""
        destroy_keys(self.reviser.engine, self.reviser.keys, self.reviser.keyring, corpus.number, at)

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
    left = [erasure for erasure in found if erasure.destroyed_at is None or keyring.is_back(number, _keys_of(erasure))]
    for erasure in left:
        _forget_accesses(engine, keys, erasure)
        keyring.destroy(number, _keys_of(erasure), at)
        engine.run(lambda tr, done=erasure: _note_destroyed(tr, keys, done, at), _OPTIONS)  # type: ignore[misc]
    return len(left)


def _keys_of(erasure: Erasure) -> dict[KeyNumber, bytes]:
    return {KeyNumber(key.number): key.scope for key in erasure.keys}


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


def _note_destroyed(tr: Transaction, keys: CorpusKeys, erasure: Erasure, at: datetime) -> None:
    now = erasures.get(tr, keys, erasure.number)
    if now is not None and now.destroyed_at is None:
        erasures.put(tr, keys, replace(now, destroyed_at=at))


def _forget_accesses(engine: Engine, keys: CorpusKeys, erasure: Erasure) -> None:
    """Removes the access counters of the erased facts, which the feed of changes names."""
    for page in _erased_facts(engine, keys, erasure.revision):
        engine.run(lambda tr, some=page: facts.forget_accesses(tr, keys, some), _OPTIONS)  # type: ignore[misc]


def _erased_facts(engine: Engine, keys: CorpusKeys, revision: Revision) -> Iterator[list[FactId]]:
    after: FactId | None = None
    while True:
        page = engine.run(
            lambda tr, a=after: list(facts.changes_of(tr.snapshot, keys, revision, a, _FACTS_AT_ONCE))  # type: ignore[misc]
        )
        if not page:
            return
        yield [changed.fact for changed in page if FactChange.ERASED in changed.change]
        after = page[-1].fact

"""What follows the commit of an erasure: its keys are destroyed, by the call itself or by whoever starts next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.purging import Purger
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.erasures import Erasure
from drillcore_server.domain.facts import FactChange
from drillcore_server.domain.ids import CorpusNumber, FactId, Revision
from drillcore_server.store import erasures, fact_accesses, facts
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.keyring import KeyNumber, Keyring
from drillcore_server.store.keyspace import Keyspace

_OPTIONS: Final = Options(idempotent=True)
_FACTS_AT_ONCE: Final = 2_000


@dataclass(frozen=True, slots=True)
class Eraser:
    """Everything that erasing needs."""

    ingester: Ingester
    purger: Purger
    purge_days: int
    """From an erasure until its bytes are removed."""

    def destroy_keys(self, corpus: Corpus, at: datetime) -> None:
        """Destroys the keys of all erasures of a corpus that are not destroyed yet."""
        destroy_keys(self.ingester.engine, self.ingester.unit.keys, self.ingester.keyring, corpus.number, at)

    def as_it_is(self, corpus: Corpus, erasure: Erasure) -> Erasure:
        keys = self.ingester.unit.keys.of_corpus(corpus.number)
        return self.ingester.engine.run(lambda tr: erasures.get(tr, keys, erasure.number)) or erasure


def destroy_keys(engine: Engine, keyspace: Keyspace, keyring: Keyring, number: CorpusNumber, at: datetime) -> int:
    """Finishes what is left to finish in a corpus; how many erasures that were. May be run again, and by several.

    Keys that a restored keyring has again are destroyed again.
    """
    keys = keyspace.of_corpus(number)
    found = engine.run(lambda tr: list(erasures.of_corpus(tr.snapshot, keys)))
    left = [one for one in found if one.destroyed_at is None or keyring.is_back(number, _keys_of(one))]
    for erasure in left:
        _forget_accesses(engine, keys, erasure)
        keyring.destroy(number, _keys_of(erasure), at)
        engine.run(lambda tr, one=erasure: _note_destroyed(tr, keys, one, at), _OPTIONS)  # type: ignore[misc]
    return len(left)


def _keys_of(erasure: Erasure) -> dict[KeyNumber, bytes]:
    return {KeyNumber(key.number): key.scope for key in erasure.keys}


def finish_erasures(engine: Engine, keyspace: Keyspace, keyring: Keyring, at: datetime) -> int:
    """Destroys the keys of erasures whose server died before it could, or that came back; how many there were."""
    noted = engine.run(lambda tr: {one.corpus for one in erasures.noted(tr.snapshot, keyspace.erasure_notes)})
    return sum(destroy_keys(engine, keyspace, keyring, number, at) for number in sorted(noted))


def _note_destroyed(tr: Transaction, keys: CorpusKeys, erasure: Erasure, at: datetime) -> None:
    now = erasures.get(tr, keys, erasure.number)
    if now is not None and now.destroyed_at is None:
        erasures.put(tr, keys, replace(now, destroyed_at=at))


def _forget_accesses(engine: Engine, keys: CorpusKeys, erasure: Erasure) -> None:
    """Removes how often the erased facts were read: the feed of changes knows which they were."""
    for page in _erased_facts(engine, keys, erasure.revision):
        engine.run(lambda tr, some=page: fact_accesses.forget(tr, keys, some), _OPTIONS)  # type: ignore[misc]


def _erased_facts(engine: Engine, keys: CorpusKeys, revision: Revision) -> Iterator[list[FactId]]:
    after: FactId | None = None
    while True:
        page = engine.run(
            lambda tr, a=after: list(facts.changes_of(tr.snapshot, keys, revision, a, _FACTS_AT_ONCE))  # type: ignore[misc]
        )
        yield [one.fact for one in page if FactChange.ERASED in one.change]
        if len(page) < _FACTS_AT_ONCE:
            return
        after = page[-1].fact

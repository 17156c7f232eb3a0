"""Compares what is sealed in a corpus with the keyring: keys that are lost, and keys that should be destroyed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from drillcore_fdb.engine import Engine
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import Revision
from drillcore_server.store import erasures
from drillcore_server.store.keyring import KeyNumber, Keyring
from drillcore_server.store.keyspace import Keyspace


class ErasureCheck:
    """One corpus and its keys."""

    def __init__(self, engine: Engine, keys: Keyspace, keyring: Keyring, corpus: Corpus) -> None:
        self._keyring = keyring
        self._corpus = corpus
        own = keys.of_corpus(corpus.number)
        self._erasures = engine.run(lambda tr: list(erasures.of_corpus(tr.snapshot, own)))

    def problems(self, sealed_under: Collection[KeyNumber]) -> Iterator[str]:
        """`sealed_under` are the keys that something in the corpus is sealed under."""
        left, destroyed = self._keyring.left_of(sealed_under)
        erased = {KeyNumber(key) for one in self._erasures for key in one.key_numbers}
        for number in sorted(set(sealed_under) - left - destroyed):
            yield self._told(f"the key {number} is lost: what is sealed under it cannot be read; restore the keyring")
        for number in sorted(destroyed - erased):
            yield self._told(f"the key {number} was destroyed, but no erasure says so")
        finished = {KeyNumber(key) for one in self._erasures if one.destroyed_at for key in one.key_numbers}
        for number in sorted(self._keyring.left_of(finished)[0]):
            yield self._told(f"the key {number} was destroyed by an erasure, and is in the keyring again")

    def notes(self, floor: Revision) -> Iterator[str]:
        for one in self._erasures:
            if one.destroyed_at is None:
                yield self._told(f"the erasure {one.id} is not finished: start the server to destroy its keys")
        if self.is_erased_since(floor):
            yield self._told(f"revision {floor} was not compared with itself: something in it was erased since")

    def is_erased_since(self, floor: Revision) -> bool:
        """Whether a trimmed corpus's oldest revision may lack something."""
        return floor > 0 and any(one.revision > floor for one in self._erasures)

    def _told(self, what: str) -> str:
        return f"corpus {self._corpus.id}: {what}"

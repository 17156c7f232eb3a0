"""The part of fsck for erasures: no key of a corpus may be lost, and erased keys must be destroyed."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from drillcore_fdb.engine import Engine
from drillcore_server.kernel import erasures
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyring import KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace


class ErasureCheck:
    def __init__(self, engine: Engine, keys: Keyspace, keyring: Keyring, corpus: Corpus) -> None:
        self._keyring = keyring
        self._corpus = corpus
        own = keys.of_corpus(corpus.number)
        self._erasures = engine.run(lambda tr: list(erasures.of_corpus(tr.snapshot, own)))

    def problems(self, sealed_under: Collection[KeyNumber]) -> Iterator[str]:
        """`sealed_under` are the keys that seal records of the corpus."""
        left, destroyed = self._keyring.stored_and_destroyed(sealed_under)
        erased = {KeyNumber(key) for erasure in self._erasures for key in erasure.key_numbers}
        for number in sorted(set(sealed_under) - left - destroyed):
            yield self._in_corpus(f"the key {number} is lost, so its records cannot be read: restore the keyring")
        for number in sorted(destroyed - erased):
            yield self._in_corpus(f"the key {number} was destroyed, but no erasure says so")
        finished = {KeyNumber(key) for erasure in self._erasures if erasure.destroyed_at for key in erasure.key_numbers}
        for number in sorted(self._keyring.stored_and_destroyed(finished)[0]):
            yield self._in_corpus(f"the erased key {number} is in the keyring again: start the server to destroy it")

    def notes(self, floor: Revision) -> Iterator[str]:
        """Findings that are not defects. `floor` is the oldest revision that the corpus still has."""
        for erasure in self._erasures:
            if erasure.destroyed_at is None:
                yield self._in_corpus(f"the erasure {erasure.id} is not finished: start the server to destroy its keys")
        if self.is_erased_since(floor):
            yield self._in_corpus(f"revision {floor} was not checked, because records of it were erased since")

    def is_erased_since(self, floor: Revision) -> bool:
        """Whether the oldest revision of a trimmed corpus may lack records that were erased later."""
        return floor > 0 and any(erasure.revision > floor for erasure in self._erasures)

    def _in_corpus(self, problem: str) -> str:
        return f"corpus {self._corpus.id}: {problem}"

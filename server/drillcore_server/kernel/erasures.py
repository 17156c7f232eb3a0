"""Which sources of a corpus were erased, and how every server learns of it.

An erasure is noted in the transaction that makes the revision without the source. Notes are counted, and every read
checks the count first. From then on no server uses a noted key (`Keyring.forget`), although it may still hold the key
in memory and the keyring may keep it for another moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.erasure_notes import NOTED, NotedErasure, noted_count
from drillcore_server.storage.ids import PrincipalId, RecordId, Revision
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind


@dataclass(frozen=True, slots=True)
class ErasedKey:
    number: int
    scope: bytes
    """The keyed hash of the source that the key sealed."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The record that a source was erased. Only a holder of the master key can tell which source it was."""

    id: UUID
    number: int
    """Counts the erasures of the corpus from 1."""
    source: bytes
    """The keyed hash of the source's id."""
    keys: tuple[ErasedKey, ...]
    """The keys destroyed with it: the source's own, and the key of the corpus's saved indexes."""
    at: datetime
    by: PrincipalId
    revision: Revision
    """The first revision without the source."""
    record: RecordId
    """The audit record of the erasure."""
    documents: int
    chunks: int
    facts: int
    sections: int
    """How many sections were written anew without the source."""
    purge_due: datetime
    destroyed_at: datetime | None = None
    """None only between the commit and the destruction of the keys."""
    purged_at: datetime | None = None

    @property
    def key_numbers(self) -> tuple[int, ...]:
        return tuple(key.number for key in self.keys)


ERASURE: Final = RecordKind(Erasure)


def add(tr: Transaction, keyspace: Keyspace, corpus: Corpus, erasure: Erasure) -> Erasure:
    """Notes the next erasure of a corpus and returns it with its number. From this commit on nobody uses its keys."""
    keys, notes = keyspace.of_corpus(corpus.number), keyspace.erasure_notes
    count = noted_count(tr, notes) + 1
    numbered = replace(erasure, number=_last(tr, keys) + 1)
    tr.set(notes.count, count.to_bytes(8, "big"))
    note = NotedErasure(corpus.number, numbered.number, numbered.key_numbers, corpus.tenant_id, corpus.id)
    NOTED.write(tr, notes.note(count), note)
    ERASURE.write(tr, keys.erasure(numbered.number), numbered)
    return numbered


def put(tr: Transaction, keys: CorpusKeys, erasure: Erasure) -> None:
    """Replaces a noted erasure, after its keys were destroyed or its bytes purged."""
    ERASURE.write(tr, keys.erasure(erasure.number), erasure)


def get(tr: Reader, keys: CorpusKeys, number: int) -> Erasure | None:
    return ERASURE.read(tr, keys.erasure(number))


def of_corpus(tr: Reader, keys: CorpusKeys, after: int = 0) -> Iterator[Erasure]:
    """The erasures of a corpus, oldest first."""
    for _, stored in codec.scan(tr, *keys.erasures(after)):
        yield ERASURE.decode(stored)


def _last(tr: Reader, keys: CorpusKeys) -> int:
    newest = next(iter(tr.range(*keys.erasures(), limit=1, reverse=True)), None)
    return 0 if newest is None else keys.parse_erasure(newest[0])

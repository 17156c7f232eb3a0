"""Which sources of a corpus were erased, and how every server gets to know it.

An erasure is noted in the transaction that makes the revision without the source. Notes are counted, and whoever begins
to read looks at the count first: a key that is noted is not used any more (`Keyring.forget`), though this server may
have it in memory and the keyring may still have it for a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.erasures import Erasure, NotedErasure
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.keyring import KeyNumber, Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind
from drillcore_server.store.spaces import ErasureNotes

ERASURE: Final = RecordKind(Erasure)
NOTED: Final = RecordKind(NotedErasure)


def add(tr: Transaction, keyspace: Keyspace, corpus: Corpus, erasure: Erasure) -> Erasure:
    """Notes an erasure, as the next one of its corpus: from this commit on nobody uses its keys."""
    keys, notes = keyspace.of_corpus(corpus.number), keyspace.erasure_notes
    count = _count(tr, notes) + 1
    numbered = replace(erasure, number=_last(tr, keys) + 1)
    tr.set(notes.count, count.to_bytes(8, "big"))
    note = NotedErasure(corpus.number, numbered.number, numbered.key_numbers, corpus.tenant_id, corpus.id)
    NOTED.write(tr, notes.note(count), note)
    ERASURE.write(tr, keys.erasure(numbered.number), numbered)
    return numbered


def put(tr: Transaction, keys: CorpusKeys, erasure: Erasure) -> None:
    """What became of it since."""
    ERASURE.write(tr, keys.erasure(erasure.number), erasure)


def get(tr: Reader, keys: CorpusKeys, number: int) -> Erasure | None:
    return ERASURE.read(tr, keys.erasure(number))


def of_corpus(tr: Reader, keys: CorpusKeys, after: int = 0) -> Iterator[Erasure]:
    """The erasures of a corpus, oldest first."""
    for _, stored in codec.scan(tr, *keys.erasures(after)):
        yield ERASURE.decode(stored)


def noted(tr: Reader, notes: ErasureNotes, after: int = 0) -> Iterator[NotedErasure]:
    """Those of the whole store, oldest first."""
    for _, stored in codec.scan(tr, *notes.after(after)):
        yield NOTED.decode(stored)


def follow(tr: Reader, notes: ErasureNotes, keyring: Keyring) -> None:
    """Has the keyring of this server know what is erased at the reader's version. Costs one read if it does."""
    count = _count(tr, notes)
    if count <= keyring.erasures_known:
        return
    found = list(noted(tr, notes, keyring.erasures_known))
    keyring.forget(KeyNumber(key) for one in found for key in one.keys)
    keyring.note_erasures(count, {one.corpus for one in found})


def _count(tr: Reader, notes: ErasureNotes) -> int:
    return int.from_bytes(tr.get(notes.count) or b"", "big")


def _last(tr: Reader, keys: CorpusKeys) -> int:
    newest = next(iter(tr.range(*keys.erasures(), limit=1, reverse=True)), None)
    return 0 if newest is None else keys.parse_erasure(newest[0])

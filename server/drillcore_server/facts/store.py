"""Facts in the store: reads at one revision, the writes of a change, and accesses.

Accesses (how often and when a fact was read) are not part of a revision: reading a fact does not change it. The store
adds them up itself, so readers never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Atomic, Reader, Transaction
from drillcore_server.facts.model import Fact, FactChange, FactStatus
from drillcore_server.facts.words import Lexicon, encode_words, has_same_words, words_of
from drillcore_server.hierarchy.model import chunk_of_raw
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.unit import Notes
from drillcore_server.kernel.writes import FACT_MARK, LOCATOR_BYTES, Write, fact_locator
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import (
    CorpusNumber,
    FactId,
    NodeId,
    Revision,
    SourceId,
    TenantId,
    from_microseconds,
    to_microseconds,
)
from drillcore_server.storage.keyring import KeyErased, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.corpus_models import EMBEDDINGS, embeddings_of
from drillcore_server.vectors.model import Embeddings

FACT = RecordKind(Fact)


@dataclass(frozen=True, slots=True)
class FactReader:
    """Reads of the facts of one corpus at one revision."""

    view: CorpusAtRevision

    def embeddings(self) -> Embeddings | None:
        """The embedding models of the corpus. None before it has vectors."""
        return embeddings_of(self.view)

    def fact(self, fact: FactId) -> Fact | None:
        """The fact, or None if it does not exist. Raises `KeyErased` if it was erased."""
        entry = self.view.sealed.get(self.view.tr, self.view.keys.fact(fact), self.view.revision)
        return None if entry is None else FACT.decode(entry.value)

    def fact_unless_erased(self, fact: FactId) -> Fact | None:
        """The fact, or None if it does not exist or was erased."""
        (found,) = self.facts_unless_erased([fact])
        return found

    def facts_unless_erased(self, facts: Sequence[FactId]) -> list[Fact | None]:
        """Each of the facts, or None if it does not exist or was erased. Reads all of them together."""
        found = self._entries_unless_erased([self.view.keys.fact(fact) for fact in facts])
        return [None if entry is None else FACT.decode(entry.value) for entry in found]

    def facts(self, after: FactId | None = None) -> Iterator[Fact]:
        """All facts behind `after`, in the order of ids."""
        for entry in self.view.sealed.scan(self.view.tr, *self.view.keys.facts(after), self.view.revision):
            yield FACT.decode(entry.value)

    def vectors_unless_erased(self, model: int, facts: Sequence[FactId]) -> list[bytes | None]:
        """The vectors that the model of this number made, or None. Reads all of them together."""
        found = self._entries_unless_erased([self.view.keys.fact_vector(model, fact) for fact in facts])
        return [None if entry is None else entry.value for entry in found]

    def _entries_unless_erased(self, keys: Sequence[bytes]) -> list[Entry | None]:
        return self.view.sealed.get_many_unless_erased(self.view.tr, keys, self.view.revision)

    def vector(self, model: int, fact: FactId) -> bytes | None:
        entry = self.view.sealed.get(self.view.tr, self.view.keys.fact_vector(model, fact), self.view.revision)
        return None if entry is None else entry.value

    def words_unless_erased(self, fact: FactId) -> bytes | None:
        """The words of a fact as they are stored. None if the fact is not searched, or was erased."""
        try:
            entry = self.view.sealed.get(self.view.tr, self.view.keys.fact_words(fact), self.view.revision)
        except KeyErased:
            return None
        return None if entry is None else entry.value

    def of_chunk(self, chunk: NodeId) -> Iterator[FactId]:
        for entry in versioned.scan(self.view.tr, *self.view.keys.chunk_facts(chunk), self.view.revision):
            yield fact_id(entry.key)

    def of_source(self, source: SourceId, after: FactId | None = None) -> Iterator[FactId]:
        keys = self.view.keys.source_facts(self.view.sealed.hashed(source), after)
        for entry in versioned.scan(self.view.tr, *keys, self.view.revision):
            yield fact_id(entry.key)


def fact_id(key: bytes) -> FactId:
    """The fact's id that a key ends with."""
    return FactId(UUID(bytes=key[-16:]))


class Changed(NamedTuple):
    """How a revision changed a fact, and the status of the fact after it."""

    revision: Revision
    fact: FactId
    change: FactChange
    status: FactStatus


def changes(tr: Reader, keys: CorpusKeys, after: Revision, up_to: Revision, limit: int = 0) -> Iterator[Changed]:
    """The changes to facts by the revisions behind `after`, up to and including `up_to`. In order."""
    for key, value in tr.range(*keys.fact_changes_between(after, up_to), limit=limit):
        revision, fact = keys.parse_fact_change(key)
        yield Changed(revision, fact, FactChange(value[0]), FactStatus(value[1]))


def changes_of(tr: Reader, keys: CorpusKeys, revision: Revision, after: FactId | None, limit: int) -> Iterator[Changed]:
    """The changes that one revision made to the facts behind `after`, in the order of ids."""
    for key, value in tr.range(*keys.fact_changes_of(revision, after), limit=limit):
        yield Changed(revision, fact_id(key), FactChange(value[0]), FactStatus(value[1]))


def page(view: CorpusAtRevision, after: FactId | None, keys_max: int) -> tuple[list[Entry], FactId | None]:
    """The facts among the next stored keys, still sealed, and the last fact that was looked at. None at the end."""
    entries, following = versioned.page(view.tr, *view.keys.facts(after), view.revision, keys_max)
    return entries, None if following is None else fact_id(versioned.before(following))


def locate(tr: Reader, keys: Keyspace, tenant: TenantId, fact: FactId) -> CorpusNumber | None:
    """The corpus that has, or had, a fact of the tenant. None if there is no such fact."""
    stored = tr.get(keys.locator(tenant, NodeId(fact)))
    if stored is None or stored[:1] != FACT_MARK:
        return None
    return CorpusNumber(int.from_bytes(stored[1:LOCATOR_BYTES], "big"))


class FactWrites:
    """Makes the writes of facts and their index entries, with an entry in the feed of changes for each fact."""

    def __init__(
        self,
        keys: Keyspace,
        tenant: TenantId,
        number: CorpusNumber,
        keyring: Keyring,
        model: int,
        others: Sequence[int] = (),
    ) -> None:
        """`model` is the number of the model that makes the vectors. `others` are models that may have vectors, too."""
        self._keyspace = keys
        self._keys = keys.of_corpus(number)
        self._tenant = tenant
        self._number = number
        self._keyring = keyring
        self._model = model
        self._others = others
        self._lexicon = Lexicon()

    def set_embeddings(self, embeddings: Embeddings) -> Write:
        return Write(self._keys.embeddings(), EMBEDDINGS.encode(embeddings))

    def add(self, fact: Fact, vector: bytes | None) -> Iterator[Write]:
        """Writes a new fact. `vector` is None only for a deleted fact, which can come with an imported core."""
        yield self._record(fact)
        if vector is not None:
            yield self._vector(fact, vector)
        yield from self._words(None, fact)
        for key in self.index_keys(fact):
            yield Write(key, b"")
        yield self._locator(fact.id)
        yield self._feed_entry(fact.id, FactChange.ADDED, fact.status)

    def change(self, before: Fact, after: Fact, what: FactChange, vector: bytes | None = None) -> Iterator[Write]:
        """Writes a changed fact. `vector` is that of changed content. A fact that becomes deleted loses its vectors."""
        yield self._record(after)
        was, now = set(self.index_keys(before)), set(self.index_keys(after))
        yield from (Write(key, None) for key in sorted(was - now))
        yield from (Write(key, b"") for key in sorted(now - was))
        if after.status is FactStatus.DELETED:
            yield from self._no_vectors(after.id)
        elif vector is not None:
            yield self._vector(after, vector)
        yield from self._words(before, after)
        yield self._feed_entry(after.id, what, after.status)

    def erase(self, fact: Fact) -> Iterator[Write]:
        """Removes a fact with its vectors, words and index entries."""
        for key in (self._keys.fact(fact.id), *self.index_keys(fact)):
            yield Write(key, None)
        yield from self._no_vectors(fact.id)
        if fact.is_searched:
            yield Write(self._keys.fact_words(fact.id), None)
        yield self._feed_entry(fact.id, FactChange.ERASED, FactStatus.DELETED)

    def index_keys(self, fact: Fact) -> list[bytes]:
        """The index entries of a fact: by source, by chunk and, while it is active and not archived, by expiry."""
        keys = [self._keys.source_fact(self._keyring.hashed(fact.source), fact.id)]
        if fact.chunk is not None:
            keys.append(self._keys.chunk_fact(fact.chunk, fact.id))
        if fact.status is FactStatus.ACTIVE and fact.archived_at is None and fact.expires_at is not None:
            keys.append(self._keys.fact_expiry(fact.expires_at, fact.id))
        return keys

    def _record(self, fact: Fact) -> Write:
        (number,) = self._keyring.numbers(self._number, [fact.source])
        return Write(self._keys.fact(fact.id), FACT.encode(fact), number)

    def _vector(self, fact: Fact, vector: bytes) -> Write:
        return self.set_vector(self._model, fact.id, fact.source, vector)

    def set_vector(self, model: int, fact: FactId, source: SourceId, vector: bytes) -> Write:
        """Writes only a vector, without an entry in the feed: for a model that searches do not use yet."""
        (number,) = self._keyring.numbers(self._number, [source])
        return Write(self._keys.fact_vector(model, fact), vector, number, is_dense=True)

    def _no_vectors(self, fact: FactId) -> Iterator[Write]:
        models = (self._model, *self._others)
        return (Write(self._keys.fact_vector(model, fact), None) for model in models)

    def _words(self, before: Fact | None, after: Fact) -> Iterator[Write]:
        """Only a fact that is searched has words, so that the lexical index can be built from words alone."""
        key, was_searched = self._keys.fact_words(after.id), before is not None and before.is_searched
        if not after.is_searched:
            yield from [Write(key, None)] if was_searched else ()
        elif before is None or not was_searched or not has_same_words(before, after):
            (number,) = self._keyring.numbers(self._number, [after.source])
            yield Write(key, encode_words(words_of(after, self._lexicon)), number, is_dense=True)

    def _feed_entry(self, fact: FactId, what: FactChange, status: FactStatus) -> Write:
        return Write(self._keys.fact_changes(), bytes([what, status]), feed=fact.bytes)

    def _locator(self, fact: FactId) -> Write:
        """The locator of a fact. The write fails if the fact's id, which a caller may choose, is the id of a raw.

        A raw has no locator of its own, so the locator of its chunk is checked.
        """
        owner, place = chunk_of_raw(NodeId(fact))
        block = self._keyspace.locator(self._tenant, owner) if place >= 0 else None
        key = self._keyspace.locator(self._tenant, NodeId(fact))
        return Write(key, fact_locator(self._number), versioned=False, block=block)


def packed(vector: npt.NDArray[np.float32] | Sequence[float]) -> bytes:
    """A vector in the format of stored vectors."""
    return np.asarray(vector, np.float32).astype("<f2").tobytes()


_COUNT: Final = b"c"
_TIME: Final = b"t"


@dataclass(frozen=True, slots=True)
class Access:
    """How often a fact was read, and when last."""

    count: int = 0
    last_at: datetime | None = None


def note_accesses(tr: Transaction, keys: CorpusKeys, facts: Iterable[FactId], at: datetime) -> None:
    """Counts one access of each fact. Makes no conflicts. Each run counts again."""
    moment = max(to_microseconds(at), 0).to_bytes(8, "little")
    for fact in facts:
        key = keys.fact_access(fact)
        tr.add(key + _COUNT, 1)
        tr.atomic(Atomic.MAX, key + _TIME, moment)


def note_accesses_later(notes: Notes, keys: CorpusKeys, facts: Iterable[FactId], at: datetime) -> None:
    """Counts one access of each fact in the transaction that records the call. So each call counts once."""
    ids = sorted(set(facts))
    notes.add(lambda tr: note_accesses(tr, keys, ids, at))


def read_accesses(tr: Reader, keys: CorpusKeys, facts: Sequence[FactId]) -> list[Access]:
    """The accesses of each fact, in order."""
    wanted = [keys.fact_access(fact) + part for fact in facts for part in (_COUNT, _TIME)]
    stored = tr.get_many(wanted)
    return [_access(count, last) for count, last in zip(stored[::2], stored[1::2], strict=True)]


def forget_accesses(tr: Transaction, keys: CorpusKeys, facts: Iterable[FactId]) -> None:
    for fact in facts:
        key = keys.fact_access(fact)
        tr.clear_range(key, key + b"\xff")


def _access(count: bytes | None, last: bytes | None) -> Access:
    if count is None or last is None:
        return Access()
    return Access(int.from_bytes(count, "little"), from_microseconds(int.from_bytes(last, "little")))

"""The facts of a corpus as a reader at one revision sees them, and the writes that change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Reader
from drillcore_server.domain.embeddings import Embeddings
from drillcore_server.domain.fact_words import is_found_alike, words_of
from drillcore_server.domain.facts import Fact, FactChange, FactStatus
from drillcore_server.domain.ids import CorpusNumber, FactId, NodeId, Revision, SourceId, TenantId
from drillcore_server.domain.nodes import chunk_of_raw
from drillcore_server.domain.words import Lexicon
from drillcore_server.store import versioned
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.embeddings import EMBEDDINGS
from drillcore_server.store.fact_words import encode_words
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import KeyErased, Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind
from drillcore_server.store.versioned import Entry
from drillcore_server.store.writes import FACT_MARK, LOCATOR_BYTES, Write, fact_locator

FACT = RecordKind(Fact)


@dataclass(frozen=True, slots=True)
class FactsView:
    """Reads of the facts of one corpus at one revision."""

    view: CorpusView

    def embeddings(self) -> Embeddings | None:
        """The model of the corpus's vectors; None before there are any."""
        return self.view.embeddings()

    def fact(self, fact: FactId) -> Fact | None:
        entry = self.view.sealed.get(self.view.tr, self.view.keys.fact(fact), self.view.revision)
        return None if entry is None else FACT.decode(entry.value)

    def fact_left(self, fact: FactId) -> Fact | None:
        """The same, but one that was erased is not there."""
        try:
            return self.fact(fact)
        except KeyErased:
            return None

    def facts(self, after: FactId | None = None) -> Iterator[Fact]:
        """All of them, in the order of ids."""
        for entry in self.view.sealed.scan(self.view.tr, *self.view.keys.facts(after), self.view.revision):
            yield FACT.decode(entry.value)

    def vector(self, model: int, fact: FactId) -> bytes | None:
        entry = self.view.sealed.get(self.view.tr, self.view.keys.fact_vector(model, fact), self.view.revision)
        return None if entry is None else entry.value

    def words_left(self, fact: FactId) -> bytes | None:
        """What a fact is found by, as it is stored; None of one that is not searched, or was erased."""
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
    """That a key ends with."""
    return FactId(UUID(bytes=key[-16:]))


class Changed(NamedTuple):
    """What a revision did to a fact, and the status it left it in."""

    revision: Revision
    fact: FactId
    change: FactChange
    status: FactStatus


def changes(tr: Reader, keys: CorpusKeys, after: Revision, up_to: Revision, limit: int = 0) -> Iterator[Changed]:
    """What the revisions after one, up to and including another, did to facts; in order."""
    for key, value in tr.range(*keys.fact_changes_between(after, up_to), limit=limit):
        revision, fact = keys.parse_fact_change(key)
        yield Changed(revision, fact, FactChange(value[0]), FactStatus(value[1]))


def changes_of(tr: Reader, keys: CorpusKeys, revision: Revision, after: FactId | None, limit: int) -> Iterator[Changed]:
    """What one revision did to facts, in the order of ids, after one of them."""
    for key, value in tr.range(*keys.fact_changes_of(revision, after), limit=limit):
        yield Changed(revision, fact_id(key), FactChange(value[0]), FactStatus(value[1]))


def page(view: CorpusView, after: FactId | None, keys_max: int) -> tuple[list[Entry], FactId | None]:
    """The facts among the next stored keys, still sealed; and the last one that was looked at, None at the end."""
    entries, following = versioned.page(view.tr, *view.keys.facts(after), view.revision, keys_max)
    return entries, None if following is None else fact_id(versioned.before(following))


def locate(tr: Reader, keys: Keyspace, tenant: TenantId, fact: FactId) -> CorpusNumber | None:
    """The corpus that has, or had, a fact of the tenant."""
    stored = tr.get(keys.locator(tenant, NodeId(fact)))
    if stored is None or stored[:1] != FACT_MARK:
        return None
    return CorpusNumber(int.from_bytes(stored[1:LOCATOR_BYTES], "big"))


class FactWrites:
    """Makes the writes of facts and of everything that leads to them, each with its entry in the feed of changes."""

    def __init__(
        self,
        keys: Keyspace,
        tenant: TenantId,
        number: CorpusNumber,
        keyring: Keyring,
        model: int,
        others: Sequence[int] = (),
    ) -> None:
        """`model` is the number of that which makes the vectors; `others` may have vectors of the facts, too."""
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
        """One that is deleted has no vector; such come only with a core."""
        yield self._record(fact)
        if vector is not None:
            yield self._vector(fact, vector)
        yield from self._words(None, fact)
        for key in self.index_keys(fact):
            yield Write(key, b"")
        yield self._locator(fact.id)
        yield self._told(fact.id, FactChange.ADDED, fact.status)

    def change(self, before: Fact, after: Fact, what: FactChange, vector: bytes | None = None) -> Iterator[Write]:
        """`vector` where the content has changed. One that is deleted has none any more."""
        yield self._record(after)
        was, now = set(self.index_keys(before)), set(self.index_keys(after))
        yield from (Write(key, None) for key in sorted(was - now))
        yield from (Write(key, b"") for key in sorted(now - was))
        if after.status is FactStatus.DELETED:
            yield from self._no_vectors(after.id)
        elif vector is not None:
            yield self._vector(after, vector)
        yield from self._words(before, after)
        yield self._told(after.id, what, after.status)

    def erase(self, fact: Fact) -> Iterator[Write]:
        """Removes it altogether, as if it had never been."""
        for key in (self._keys.fact(fact.id), *self.index_keys(fact)):
            yield Write(key, None)
        yield from self._no_vectors(fact.id)
        if fact.is_searched:
            yield Write(self._keys.fact_words(fact.id), None)
        yield self._told(fact.id, FactChange.ERASED, FactStatus.DELETED)

    def index_keys(self, fact: Fact) -> list[bytes]:
        """What leads to a fact: by its source, its chunk, and by when it expires while it is active and searched."""
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
        """Of another model than the one that searches use: the feed does not tell of it."""
        (number,) = self._keyring.numbers(self._number, [source])
        return Write(self._keys.fact_vector(model, fact), vector, number, is_dense=True)

    def _no_vectors(self, fact: FactId) -> Iterator[Write]:
        models = (self._model, *self._others)
        return (Write(self._keys.fact_vector(model, fact), None) for model in models)

    def _words(self, before: Fact | None, after: Fact) -> Iterator[Write]:
        """Only a fact that is searched has words, so that an index is read from them alone."""
        key, was_searched = self._keys.fact_words(after.id), before is not None and before.is_searched
        if not after.is_searched:
            yield from [Write(key, None)] if was_searched else ()
        elif before is None or not was_searched or not is_found_alike(before, after):
            (number,) = self._keyring.numbers(self._number, [after.source])
            yield Write(key, encode_words(words_of(after, self._lexicon)), number, is_dense=True)

    def _told(self, fact: FactId, what: FactChange, status: FactStatus) -> Write:
        return Write(self._keys.fact_changes(), bytes([what, status]), feed=fact.bytes)

    def _locator(self, fact: FactId) -> Write:
        """An id that a caller gives may be that of a raw, which has no locator of its own to be in the way."""
        owner, place = chunk_of_raw(NodeId(fact))
        block = self._keyspace.locator(self._tenant, owner) if place >= 0 else None
        key = self._keyspace.locator(self._tenant, NodeId(fact))
        return Write(key, fact_locator(self._number), versioned=False, block=block)


def packed(vector: npt.NDArray[np.float32] | Sequence[float]) -> bytes:
    """A vector as it is stored."""
    return np.asarray(vector, np.float32).astype("<f2").tobytes()

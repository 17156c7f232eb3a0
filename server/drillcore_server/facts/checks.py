"""Checks the facts of a corpus against their indexes, words, chunks and sources."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from uuid import UUID

from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.facts import store as facts
from drillcore_server.facts.model import Fact, FactStatus, fact_hash
from drillcore_server.facts.state_hash import STATE, StoredState, component
from drillcore_server.facts.store import FACT, FactWrites, encode_words, fact_id
from drillcore_server.facts.words import Lexicon, words_of
from drillcore_server.hierarchy.model import Chunk, Document
from drillcore_server.hierarchy.store import SOURCE
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.storage.ids import FactId, NodeId, SourceId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.versioned import Entry


class FactWordsCheck:
    """Checks the stored words of facts. Ask it in the order of the facts' ids: it reads along and holds nothing."""

    def __init__(self, snapshot: BatchedReads) -> None:
        self._snapshot = snapshot
        self._entries = snapshot.entries(snapshot.keys.all_fact_words())
        self._next: Entry | None = None
        self._is_begun = False
        self._lexicon = Lexicon()

    def of(self, fact: Fact) -> Iterator[str]:
        """The problems of a fact's words, and of stray words before it."""
        while (entry := self._peek()) is not None and entry.key[-16:] < fact.id.bytes:
            yield self._stray(entry)
        if entry is None or entry.key[-16:] != fact.id.bytes:
            if fact.is_searched:
                yield f"fact {fact.id} is searched, but has no words"
        elif not fact.is_searched:
            yield self._stray(entry)
        else:
            yield from self._compared(fact, entry)

    def left(self) -> Iterator[str]:
        """Stray words behind the last fact."""
        while (entry := self._peek()) is not None:
            yield self._stray(entry)

    def _compared(self, fact: Fact, entry: Entry) -> Iterator[str]:
        self._next = next(self._entries, None)
        try:
            stored = self._snapshot.sealed.opened(entry).value
        except EngineError as error:
            yield error.message
            return
        if stored != encode_words(words_of(fact, self._lexicon)):
            yield f"the words of fact {fact.id} do not match its content and titles"

    def _stray(self, entry: Entry) -> str:
        self._next = next(self._entries, None)
        return f"there are words for {fact_id(entry.key)}, which is missing or not searched"

    def _peek(self) -> Entry | None:
        if not self._is_begun:
            self._is_begun, self._next = True, next(self._entries, None)
        return self._next


_NO_MODEL = 0
"""This check writes nothing, so it needs no model."""


class FactCheck:
    """Checks one corpus at one revision. Holds the ids and index keys of facts in memory, not their content."""

    def __init__(self, snapshot: BatchedReads, keys: Keyspace, keyring: Keyring, corpus: Corpus) -> None:
        self._snapshot = snapshot
        self._keyspace = keys
        self._corpus = corpus
        self._writes = FactWrites(keys, corpus.tenant_id, corpus.number, keyring, _NO_MODEL)
        self._ids: list[FactId] = []
        self._leading: set[bytes] = set()
        self._counts: Counter[SourceId] = Counter()
        self._active = 0
        self._state = hashlib.sha256()
        self._words = FactWordsCheck(snapshot)

    def problems(self, documents: Mapping[UUID, Document], chunks: Mapping[NodeId, Chunk]) -> Iterator[str]:
        for entry in self._opened(self._snapshot.keys.facts()):
            yield from [entry] if isinstance(entry, str) else self._fact(entry, documents, chunks)
        yield from self._words.left()
        yield from self._stored_state()
        yield from self._indexes()
        yield from self._locators()
        yield from self._sources()

    def _fact(self, entry: Entry, documents: Mapping[UUID, Document], chunks: Mapping[NodeId, Chunk]) -> Iterator[str]:
        fact = FACT.decode(entry.value)
        self._ids.append(fact.id)
        self._leading.update(self._writes.index_keys(fact))
        self._counts[fact.source] += fact.status is not FactStatus.DELETED
        if fact.status is FactStatus.ACTIVE:
            self._state.update((b"|" if self._active else b"") + component(fact))
            self._active += 1
        if facts.fact_id(entry.key) != fact.id:
            yield f"fact {fact.id} is stored under the key of another"
        if fact.content_hash != fact_hash(fact.content):
            yield f"the hash of fact {fact.id} does not match its content"
        if fact.status is FactStatus.ACTIVE and fact.document in documents and not _is_held(fact, chunks):
            yield f"the chunk of fact {fact.id} is missing, or does not hold it"
        yield from self._words.of(fact)

    def _stored_state(self) -> Iterator[str]:
        """The stored state hash matches the facts, if it is of this revision."""
        stored = self._snapshot.read(lambda view: STATE.read(view.tr, view.keys.state_hash()))
        own = StoredState(self._snapshot.revision, self._state.hexdigest(), self._active)
        if stored is not None and stored.revision == own.revision and stored != own:
            yield "the stored state hash does not match the facts"

    def _indexes(self) -> Iterator[str]:
        keys = self._snapshot.keys
        there: set[bytes] = set()
        for index in (keys.all_source_facts(), keys.all_chunk_facts(), keys.all_fact_expiries()):
            there.update(entry.key for entry in self._snapshot.entries(index))
        yield from (f"the facts' indexes lack {key.hex()}" for key in self._leading - there)
        yield from (f"the facts' indexes have {key.hex()}, which leads nowhere" for key in there - self._leading)

    def _locators(self) -> Iterator[str]:
        found = self._snapshot.find(self._ids, self._located)
        for fact, number in zip(self._ids, found, strict=True):
            if number != self._corpus.number:
                yield f"the locator of fact {fact} does not lead to it"

    def _located(self, view: CorpusAtRevision, fact: FactId) -> int | None:
        return facts.locate(view.tr, self._keyspace, self._corpus.tenant_id, fact)

    def _sources(self) -> Iterator[str]:
        """Every source of a fact is registered, with the right number of facts."""
        for entry in self._opened(self._snapshot.keys.sources()):
            if isinstance(entry, str):
                yield entry
                continue
            source = SOURCE.decode(entry.value)
            counted = self._counts.pop(source.id, 0)
            if source.fact_count != counted:
                yield f"a source counts {source.fact_count} facts, but there are {counted}: {entry.key.hex()}"
        if self._counts:
            yield f"{len(self._counts)} sources of facts are not registered"

    def _opened(self, keys: KeyRange) -> Iterator[Entry | str]:
        """The opened entries of a range. For a record that cannot be opened, the problem in words."""
        for entry in self._snapshot.entries(keys):
            try:
                yield self._snapshot.sealed.opened(entry)
            except EngineError as error:
                yield error.message


def _is_held(fact: Fact, chunks: Mapping[NodeId, Chunk]) -> bool:
    chunk = None if fact.chunk is None else chunks.get(fact.chunk)
    if chunk is None or chunk.document != fact.document:
        return False
    return fact.span is None or (chunk.span.start <= fact.span.start and fact.span.end <= chunk.span.end)

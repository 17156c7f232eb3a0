"""Proves that the facts of a corpus agree with what leads to them, with their chunks and with the source registry."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from uuid import UUID

from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.derived.state_hashes import STATE, StoredState
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.facts import Fact, FactStatus, fact_hash
from drillcore_server.domain.ids import FactId, NodeId, SourceId
from drillcore_server.domain.nodes import Chunk, Document
from drillcore_server.domain.state_hash import component
from drillcore_server.fsck_words import FactWordsCheck
from drillcore_server.store import facts
from drillcore_server.store.facts import FACT, FactWrites
from drillcore_server.store.hierarchy import SOURCE, CorpusView
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.versioned import Entry

_NO_MODEL = 0
"""Nothing is written here, so no vector either."""


class FactCheck:
    """One corpus at one revision. Of facts their ids and what leads to them are held, not what they say."""

    def __init__(self, snapshot: Snapshot, keys: Keyspace, keyring: Keyring, corpus: Corpus) -> None:
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
            yield f"fact {fact.id} is kept as another"
        if fact.content_hash != fact_hash(fact.content):
            yield f"the hash of fact {fact.id} is not that of its content"
        if fact.status is FactStatus.ACTIVE and fact.document in documents and not _is_held(fact, chunks):
            yield f"the chunk of fact {fact.id} is not there, or does not hold it"
        yield from self._words.of(fact)

    def _stored_state(self) -> Iterator[str]:
        """The state hash that was kept is that of the facts, if it is of this revision."""
        stored = self._snapshot.read(lambda view: STATE.read(view.tr, view.keys.state_hash()))
        own = StoredState(self._snapshot.revision, self._state.hexdigest(), self._active)
        if stored is not None and stored.revision == own.revision and stored != own:
            yield "the state hash that is kept is not that of its facts"

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

    def _located(self, view: CorpusView, fact: FactId) -> int | None:
        return facts.locate(view.tr, self._keyspace, self._corpus.tenant_id, fact)

    def _sources(self) -> Iterator[str]:
        """Every source of a fact is registered, with as many facts as there are."""
        for entry in self._opened(self._snapshot.keys.sources()):
            if isinstance(entry, str):
                yield entry
                continue
            source = SOURCE.decode(entry.value)
            counted = self._counts.pop(source.id, 0)
            if source.fact_count != counted:
                yield f"a source says {source.fact_count} facts, there are {counted}: {entry.key.hex()}"
        if self._counts:
            yield f"{len(self._counts)} sources of facts are not registered"

    def _opened(self, keys: KeyRange) -> Iterator[Entry | str]:
        """What the revision has of a range, opened; a record that cannot be opened is said in words."""
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

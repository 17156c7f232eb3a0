"""How the words of a fact are kept.

    chunk (16 bytes) document (16) passage (2) number of words of the content (2) lead (2) headings (2) title (2)
    number of different words (2), for each, in order: term (4) how often in content (1) lead (1) headings (1) title (1)
    pairs of neighbours, in order: term (4)

Ids are zeros and a passage is ones where there are none; numbers are little-endian, and what is more than fits is the
most that fits. So the records of many facts, one behind the other, are arrays that can be used as they are.

The facts of a corpus as a reader at one revision sees them, and the writes that change them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Reader
from drillcore_server.facts.model import Fact, FactChange, FactStatus
from drillcore_server.facts.words import FactWords, Lexicon, Term, is_found_alike, words_of
from drillcore_server.hierarchy.model import chunk_of_raw
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.writes import FACT_MARK, LOCATOR_BYTES, Write, fact_locator
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, FactId, NodeId, Revision, SourceId, TenantId
from drillcore_server.storage.keyring import KeyErased, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.model import Embeddings
from drillcore_server.vectors.store import EMBEDDINGS, embeddings_of

PARTS: Final = ("content", "lead", "headings", "title")
_LENGTHS: Final = tuple((part, "<u2") for part in PARTS)
HEAD: Final = np.dtype([("chunk", "V16"), ("document", "V16"), ("passage", "<u2"), *_LENGTHS, ("words", "<u2")])
WORD: Final = np.dtype([("term", "<u4"), *((part, "u1") for part in PARTS)])
PAIR: Final = np.dtype("<u4")
NO_NODE: Final = UUID(int=0).bytes
NO_PASSAGE: Final = (1 << 16) - 1
_LENGTH_MAX: Final = (1 << 16) - 1
_COUNT_MAX: Final = (1 << 8) - 1
_SHIFTS: Final = (0, 8, 16, 24)
"""Of the counts in the four bytes behind a term."""

_Words = tuple[Mapping[Term, int], ...]


def encode_words(words: FactWords) -> bytes:
    parts: _Words = (words.content, words.lead, words.headings, words.title)
    counts: dict[int, int] = {}
    for shift, part in zip(_SHIFTS, parts, strict=True):
        for term, count in part.items():
            counts[term] = counts.get(term, 0) | min(count, _COUNT_MAX) << shift
    found = sorted(counts.items())[:_LENGTH_MAX]
    numbers = [number for pair in found for number in pair]
    numbers += sorted(words.pairs)
    return _head(words, parts, len(found)) + struct.pack(f"<{len(numbers)}I", *numbers)


def _head(words: FactWords, parts: _Words, count: int) -> bytes:
    chunk = NO_NODE if words.chunk is None else words.chunk.bytes
    document = NO_NODE if words.document is None else words.document.bytes
    passage = NO_PASSAGE if words.passage is None else min(words.passage, NO_PASSAGE)
    lengths = (min(sum(one.values()), _LENGTH_MAX) for one in parts)
    return chunk + document + struct.pack("<6H", passage, *lengths, count)


FACT = RecordKind(Fact)


@dataclass(frozen=True, slots=True)
class FactReader:
    """Reads of the facts of one corpus at one revision."""

    view: CorpusAtRevision

    def embeddings(self) -> Embeddings | None:
        """The model of the corpus's vectors; None before there are any."""
        return embeddings_of(self.view)

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


def page(view: CorpusAtRevision, after: FactId | None, keys_max: int) -> tuple[list[Entry], FactId | None]:
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

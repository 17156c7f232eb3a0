"""The quads of a corpus as a reader at one revision sees them, and the writes that change them.

    place      subject, predicate, object and graph as keyed hashes of 12 bytes, the source it was put of as one of 16
    record     QUADS, by place: the source's id and the quad, sealed under the source's key, or the corpus's own
    entries    QUAD_INDEX, in six other orders of the same hashes, so that every pattern is a range of one order

The source comes last in all orders but one, so what several sources say is together. A hash may, in theory, be
another term's too: whoever reads compares the quad itself with the pattern.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from drillcore_fdb.tuples import KeyRange
from drillcore_formats.quads import Iri, Term
from drillcore_server.graphs.quad_model import Quad, QuadPattern, SourcedQuad, decoded_quad, encoded_quad, encoded_term
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, SourceId
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyErased, KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.versioned import Entry

HASH_BYTES: Final = 12
QUAD_BYTES: Final = 4 * HASH_BYTES
"""Of a place, without the source."""
SOURCE_BYTES: Final = 16
PLACE_BYTES: Final = QUAD_BYTES + SOURCE_BYTES
RECORDS: Final = 0
"""The order of the records themselves: subject, predicate, object, graph."""
BY_SOURCE: Final = 6
_ORDERS: Final = ("spog", "pogs", "ogsp", "gspo", "gpso", "ospg")
_SOURCE_ID_BYTES: Final = 2
"""Of the length of a source's id in a record."""
_SQUEEZE_FROM_BYTES: Final = 1_000
"""A few IRIs hardly get shorter, and trying takes longer than all the rest."""
_KNOWN_MAX: Final = 20_000
_KNOWN_CHARACTERS_MAX: Final = 500
"""Names whose hashes are at hand: quads that come together share most of theirs. Long ones would fill the memory."""
_KEYS_MAX: Final = 500
"""Looked at by one transaction of a walk, with their records: well within five seconds."""
BYTES_MAX: Final = 1 << 24
"""Of those records, which are held: one may have megabytes."""


class QuadHashes:
    """What stands for terms, graphs and sources in the keys of one corpus. For one call: it keeps what it hashed."""

    def __init__(self, secret: bytes, source: Callable[[SourceId], bytes]) -> None:
        self._secret = secret
        self._known: Callable[[Term], bytes] = lru_cache(_KNOWN_MAX)(self._hashed)
        self.source: Callable[[SourceId], bytes] = lru_cache(_KNOWN_MAX)(source)

    @classmethod
    def of(cls, keyring: Keyring, number: CorpusNumber) -> QuadHashes:
        (corpus_key,) = keyring.numbers(number, [CORPUS_SCOPE])
        return cls(keyring.derived(corpus_key, b"quads"), keyring.hashed)

    def place(self, quad: Quad, source: SourceId) -> bytes:
        return self.quad(quad) + self.source(source)

    def quad(self, quad: Quad) -> bytes:
        """The part of its places that does not tell the source."""
        term = self.term
        return term(quad.subject) + term(quad.predicate) + term(quad.object) + self.graph(quad.graph)

    def term(self, term: Term) -> bytes:
        if isinstance(term, Iri) and len(term.value) <= _KNOWN_CHARACTERS_MAX:
            return self._known(term)
        return self._hashed(term)

    def graph(self, graph: str) -> bytes:
        """As of a term: that the default graph has no name does no harm."""
        return self.term(Iri(graph))

    def _hashed(self, term: Term) -> bytes:
        return hmac.digest(self._secret, encoded_term(term), "sha256")[:HASH_BYTES]


class Range(NamedTuple):
    """Where the quads of a pattern are."""

    order: int
    prefix: bytes


class Candidate(NamedTuple):
    """A quad that may match, by its place; with its record, where the records themselves were looked at."""

    place: bytes
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class QuadReader:
    """Reads of the quads of one corpus at one revision."""

    view: CorpusAtRevision
    hashes: QuadHashes

    def has(self, place: bytes) -> bool:
        return versioned.get(self.view.tr, self.view.keys.quad(place), self.view.revision) is not None

    def places_of(self, quad: Quad) -> list[bytes]:
        """One for each source that the quad was put of."""
        keys = self.view.keys.quads(self.hashes.quad(quad))
        return [entry.key[-PLACE_BYTES:] for entry in versioned.scan(self.view.tr, *keys, self.view.revision)]

    def candidates(self, pattern: QuadPattern, begin: bytes, keys_max: int) -> tuple[list[Candidate], bytes | None]:
        """Those among the next stored keys, and where to go on, None at the end. Begins at the start with nothing."""
        where = self.range_of(pattern)
        keys, base = _keys_of(self.view.keys, where)
        first = max(keys.begin, base + begin)
        if first >= keys.end:
            return [], None
        entries, following = versioned.page(self.view.tr, first, keys.end, self.view.revision, keys_max)
        found = [Candidate(place_at(where.order, one.key), None if where.order else one) for one in entries]
        return found, None if following is None else following[len(base) :]

    def start_of(self, pattern: QuadPattern, candidate: Candidate) -> bytes:
        """Where to go on to get a candidate again, and what follows it."""
        return _placed(self.range_of(pattern).order, candidate.place)

    def read(self, candidate: Candidate) -> SourcedQuad | None:
        """What is stored at a place; None if it was erased."""
        stored = self.record(candidate)
        return None if stored is None else decode_record(stored)

    def record(self, candidate: Candidate) -> bytes | None:
        """The same, as `decode_record` takes it."""
        entry = candidate.entry
        try:
            if entry is None:
                key = self.view.keys.quad(candidate.place)
                found = self.view.sealed.get(self.view.tr, key, self.view.revision)
            else:
                found = self.view.sealed.opened(entry)
        except KeyErased:
            return None
        return None if found is None else found.value

    def match(self, pattern: QuadPattern, begin: bytes, keys_max: int) -> tuple[list[SourcedQuad], bytes | None]:
        """What matches among the next stored keys, as far as their records are not too large, and where to go on; None
        at the end."""
        candidates, following = self.candidates(pattern, begin, keys_max)
        found, size_bytes = list[SourcedQuad](), 0
        for one in candidates:
            if size_bytes >= BYTES_MAX:
                return found, self.start_of(pattern, one)
            stored = self.record(one) or b""
            size_bytes += len(stored)
            if stored and _is_wanted(pattern, quad := decode_record(stored)):
                found.append(quad)
        return found, following

    def range_of(self, pattern: QuadPattern) -> Range:
        """The order in which the bound terms of a pattern come first, or as many of them as can."""
        bound = self._bound(pattern)
        if pattern.source is not None:
            return Range(BY_SOURCE, self.hashes.source(pattern.source) + _prefix("spog", bound))
        order = max(range(len(_ORDERS)), key=lambda one: (len(_prefix(_ORDERS[one], bound)), -one))
        return Range(order, _prefix(_ORDERS[order], bound))

    def _bound(self, pattern: QuadPattern) -> dict[str, bytes]:
        terms = {"s": pattern.subject, "p": pattern.predicate, "o": pattern.object}
        bound = {name: self.hashes.term(term) for name, term in terms.items() if term is not None}
        return bound if pattern.graph is None else {**bound, "g": self.hashes.graph(pattern.graph)}


class QuadWrites:
    """Makes the writes of quads and of everything that leads to them."""

    def __init__(self, keys: Keyspace, number: CorpusNumber, keyring: Keyring) -> None:
        self._keys = keys.of_corpus(number)
        self.hashes = QuadHashes.of(keyring, number)
        self._number_of: Callable[[SourceId], KeyNumber] = lru_cache(_KNOWN_MAX)(
            lambda source: keyring.numbers(number, [source])[0]
        )

    def add(self, quad: Quad, source: SourceId) -> Iterator[Write]:
        """Of a quad that is not there yet, of this source."""
        return self.add_at(self.hashes.place(quad, source), quad, source)

    def add_at(self, place: bytes, quad: Quad, source: SourceId) -> Iterator[Write]:
        """The same for who knows its place."""
        record = encode_record(quad, source)
        is_dense = len(record) < _SQUEEZE_FROM_BYTES
        yield Write(self._keys.quad(place), record, self._number_of(source), is_dense=is_dense)
        for key in index_keys(self._keys, place):
            yield Write(key, b"")

    def remove(self, quad: Quad, source: SourceId) -> Iterator[Write]:
        """Of a quad that is there, of this source."""
        return removed_at(self._keys, self.hashes.place(quad, source))


def removed_at(keys: CorpusKeys, place: bytes) -> Iterator[Write]:
    yield Write(keys.quad(place), None)
    for key in index_keys(keys, place):
        yield Write(key, None)


def index_keys(keys: CorpusKeys, place: bytes) -> list[bytes]:
    """What leads to a quad, in the order of the orders' numbers."""
    s, p, o, g = place[:12], place[12:24], place[24:36], place[36:48]
    source, entry = place[48:], keys.quad_entry
    return [
        entry(1, p + o + g + s + source),
        entry(2, o + g + s + p + source),
        entry(3, g + s + p + o + source),
        entry(4, g + p + s + o + source),
        entry(5, o + s + p + g + source),
        entry(BY_SOURCE, source + place[:48]),
    ]


def encode_record(quad: Quad, source: SourceId) -> bytes:
    named = source.encode()
    return len(named).to_bytes(_SOURCE_ID_BYTES, "big") + named + encoded_quad(quad)


def decode_record(stored: bytes) -> SourcedQuad:
    source, quad = parted_record(stored)
    return SourcedQuad(decoded_quad(quad), SourceId(source.decode()))


def parted_record(stored: bytes) -> tuple[bytes, bytes]:
    """The source's id and the quad, both still encoded."""
    end = _SOURCE_ID_BYTES + int.from_bytes(stored[:_SOURCE_ID_BYTES], "big")
    return stored[_SOURCE_ID_BYTES:end], stored[end:]


def stored_quads(snapshot: BatchedReads) -> Iterator[SourcedQuad]:
    """All that were put, in the order of their places: those of one quad together. What was erased is left out."""
    for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.quads())):
        yield decode_record(entry.value)


def matching_quads(snapshot: BatchedReads, hashes: QuadHashes, pattern: QuadPattern) -> Iterator[SourcedQuad]:
    """Those that match a pattern, in as many transactions as it takes."""
    begin: bytes | None = b""
    while begin is not None:
        page, begin = snapshot.read(
            lambda view, b=begin: QuadReader(view, hashes).match(pattern, b, _KEYS_MAX)  # type: ignore[misc]
        )
        yield from page


def without_source(snapshot: BatchedReads, hashed: bytes) -> Iterator[Write]:
    """The writes that remove every quad of a source, given as it stands in keys."""
    for entry in snapshot.entries(snapshot.keys.quad_entries(BY_SOURCE, hashed)):
        yield from removed_at(snapshot.keys, place_at(BY_SOURCE, entry.key))


def place_at(order: int, key: bytes) -> bytes:
    """The place of a quad, of a key of an order."""
    entry = key[-PLACE_BYTES:]
    if order == RECORDS:
        return entry
    if order == BY_SOURCE:
        return entry[SOURCE_BYTES:] + entry[:SOURCE_BYTES]
    hashes = {name: entry[at * HASH_BYTES :][:HASH_BYTES] for at, name in enumerate(_ORDERS[order])}
    return b"".join(hashes[name] for name in "spog") + entry[QUAD_BYTES:]


def indexed_place(keys: CorpusKeys, key: bytes) -> bytes:
    """The place of the quad that an entry of the index leads to, whatever its order."""
    return place_at(key[len(keys.quad_entry(0, b"")) - 1], key)


def _placed(order: int, place: bytes) -> bytes:
    """The entry of a quad in an order."""
    source = place[QUAD_BYTES:]
    if order == BY_SOURCE:
        return source + place[:QUAD_BYTES]
    hashes = {name: place[at * HASH_BYTES :][:HASH_BYTES] for at, name in enumerate("spog")}
    return b"".join(hashes[name] for name in _ORDERS[order]) + source


def _keys_of(keys: CorpusKeys, where: Range) -> tuple[KeyRange, bytes]:
    """The range, and what all keys of the order begin with."""
    if where.order == RECORDS:
        return keys.quads(where.prefix), keys.quad(b"")
    return keys.quad_entries(where.order, where.prefix), keys.quad_entry(where.order, b"")


def _prefix(order: str, bound: dict[str, bytes]) -> bytes:
    prefix = b""
    for name in order:
        if name not in bound:
            break
        prefix += bound[name]
    return prefix


def _is_wanted(pattern: QuadPattern, found: SourcedQuad) -> bool:
    return pattern.matches(found.quad) and pattern.source in {None, found.source}

"""Reads the quads of a corpus at one revision, and makes the writes that change them.

    place      keyed hashes of subject, predicate, object and graph (12 bytes each) and of the quad's source (16 bytes)
    record     QUADS, by place: the source's id and the quad, sealed under the source's key, or the corpus's own
    entries    QUAD_INDEX, in six other orders of the same hashes, so that every pattern is a range of one order

The source comes last in all orders but one, so the records of a quad that several sources state are next to each other.
Two terms may, in theory, have the same hash. Readers therefore compare the quad itself with the pattern.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from drillcore_fdb.tuples import KeyRange
from drillcore_formats.quads import Iri, Term
from drillcore_server.graphs.quad_model import Quad, QuadPattern, SourcedQuad, decoded_quad, encoded_quad, encoded_term
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.holdings import Holdings
from drillcore_server.kernel.pages import read_together
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, SourceId
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyErased, KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.versioned import Entry

HASH_BYTES: Final = 12
QUAD_BYTES: Final = 4 * HASH_BYTES
"""Length of the part of a place before the source."""
SOURCE_BYTES: Final = 16
PLACE_BYTES: Final = QUAD_BYTES + SOURCE_BYTES
RECORDS: Final = 0
"""Number of the order of the records themselves: subject, predicate, object, graph."""
BY_SOURCE: Final = 6
_ORDERS: Final = ("spog", "pogs", "ogsp", "gspo", "gpso", "ospg")
_ALL_BOUND: Final = 1
"""An order of index entries for whole quads: any but those of records and sources would do."""
_SOURCE_ID_BYTES: Final = 2
"""Bytes at the start of a record that hold the length of the source's id."""
_COMPRESS_FROM_BYTES: Final = 1_000
"""Shorter records are not compressed: a few IRIs hardly get shorter, and trying takes longer than the rest of a put."""
_KNOWN_MAX: Final = 20_000
_KNOWN_CHARACTERS_MAX: Final = 500
"""IRIs up to this length have their hashes cached, because quads of one call share most of their IRIs."""
_KEYS_MAX: Final = 500
"""Keys, with their records, that one transaction of a walk reads. Stays well within five seconds."""
_RECORDS_AT_ONCE: Final = 250
"""Records that are read together. Of each at most 90 kB are held, until it is asked for."""
BYTES_MAX: Final = 1 << 24
"""Bytes of records that one transaction of a walk holds. One record may have megabytes."""


class QuadHashes:
    """Makes the keyed hashes of terms, graphs and sources in the keys of one corpus. Caches them; use one per call."""

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
        """The part that all places of a quad have in common: everything but the source."""
        term = self.term
        return term(quad.subject) + term(quad.predicate) + term(quad.object) + self.graph(quad.graph)

    def term(self, term: Term) -> bytes:
        if isinstance(term, Iri) and len(term.value) <= _KNOWN_CHARACTERS_MAX:
            return self._known(term)
        return self._hashed(term)

    def graph(self, graph: str) -> bytes:
        """Hashes a graph's name as an IRI. The default graph is hashed as the empty IRI, which no term can be."""
        return self.term(Iri(graph))

    def _hashed(self, term: Term) -> bytes:
        return hmac.digest(self._secret, encoded_term(term), "sha256")[:HASH_BYTES]


class Range(NamedTuple):
    """The range of keys that has all quads of a pattern."""

    order: int
    prefix: bytes


class Candidate(NamedTuple):
    """A quad that may match."""

    place: bytes
    entry: Entry | None
    """Its record, if the range was one of records rather than index entries."""


@dataclass(frozen=True, slots=True)
class QuadReader:
    """Reads of the quads of one corpus at one revision."""

    view: CorpusAtRevision
    hashes: QuadHashes

    def places_there(self, places: Sequence[bytes]) -> list[bytes]:
        """Those of the places that have a quad, read together."""
        found = versioned.are_there(self.view.tr, list(map(self.view.keys.quad, places)), self.view.revision)
        return [place for place, is_there in zip(places, found, strict=True) if is_there]

    def places_of(self, quads: Sequence[Quad]) -> list[list[bytes]]:
        """The places of each quad, one for each source that states it. Reads only index entries, all together."""
        wanted = (_placed(_ALL_BOUND, self.hashes.quad(quad)) for quad in quads)
        ranges = [self.view.keys.quad_entries(_ALL_BOUND, quad) for quad in wanted]
        found = versioned.scan_many(self.view.tr, ranges, self.view.revision)
        return [[place_at(_ALL_BOUND, entry.key) for entry in entries] for entries in found]

    def candidates(self, pattern: QuadPattern, begin: bytes, keys_max: int) -> tuple[list[Candidate], bytes | None]:
        """Candidates among the next stored keys, and where to continue; None at the end. The first `begin` is empty."""
        where = self.range_of(pattern)
        keys, base = _keys_of(self.view.keys, where)
        first = max(keys.begin, base + begin)
        if first >= keys.end:
            return [], None
        entries, following = versioned.page(self.view.tr, first, keys.end, self.view.revision, keys_max)
        found = [Candidate(place_at(where.order, entry.key), None if where.order else entry) for entry in entries]
        return found, None if following is None else following[len(base) :]

    def start_of(self, pattern: QuadPattern, candidate: Candidate) -> bytes:
        """The `begin` from which `candidates` returns this candidate first."""
        return _placed(self.range_of(pattern).order, candidate.place)

    def with_records_ahead(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """The candidates. Their records are read together, before the first of them is given."""

        def read(some: list[Candidate]) -> list[Candidate]:
            keys = [self.view.keys.quad(candidate.place) for candidate in some if candidate.entry is None]
            versioned.read_ends_ahead(self.view.tr, keys, self.view.revision)
            return some

        return read_together(candidates, _RECORDS_AT_ONCE, read)

    def record(self, candidate: Candidate) -> bytes | None:
        """The stored record, still encoded; None if it was erased."""
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
        """Matching quads among the next stored keys, and where to continue; None at the end.

        Stops early once the records that were read exceed `BYTES_MAX`.
        """
        candidates, following = self.candidates(pattern, begin, keys_max)
        found, size_bytes = list[SourcedQuad](), 0
        for candidate in self.with_records_ahead(candidates):
            if size_bytes >= BYTES_MAX:
                return found, self.start_of(pattern, candidate)
            stored = self.record(candidate) or b""
            size_bytes += len(stored)
            if stored and _matches(pattern, quad := decode_record(stored)):
                found.append(quad)
        return found, following

    def range_of(self, pattern: QuadPattern) -> Range:
        """The range in the order that puts as many bound terms of the pattern as possible first."""
        bound = self._bound(pattern)
        if pattern.source is not None:
            return Range(BY_SOURCE, self.hashes.source(pattern.source) + _prefix("spog", bound))
        order = max(range(len(_ORDERS)), key=lambda number: (len(_prefix(_ORDERS[number], bound)), -number))
        return Range(order, _prefix(_ORDERS[order], bound))

    def _bound(self, pattern: QuadPattern) -> dict[str, bytes]:
        terms = {"s": pattern.subject, "p": pattern.predicate, "o": pattern.object}
        bound = {name: self.hashes.term(term) for name, term in terms.items() if term is not None}
        return bound if pattern.graph is None else {**bound, "g": self.hashes.graph(pattern.graph)}


class QuadWrites:
    """Makes the writes of quads and of their index entries."""

    def __init__(self, keys: Keyspace, number: CorpusNumber, keyring: Keyring) -> None:
        self._keys = keys.of_corpus(number)
        self.hashes = QuadHashes.of(keyring, number)
        self._number_of: Callable[[SourceId], KeyNumber] = lru_cache(_KNOWN_MAX)(
            lambda source: keyring.numbers(number, [source])[0]
        )

    def add(self, quad: Quad, source: SourceId) -> Iterator[Write]:
        """Adds a quad of a source. The corpus must not have it yet from this source."""
        return self.add_at(self.hashes.place(quad, source), quad, source)

    def add_at(self, place: bytes, quad: Quad, source: SourceId) -> Iterator[Write]:
        """Like `add`, for a quad whose place is known."""
        record = encode_record(quad, source)
        is_dense = len(record) < _COMPRESS_FROM_BYTES
        yield Write(self._keys.quad(place), record, self._number_of(source), is_dense=is_dense)
        for key in index_keys(self._keys, place):
            yield Write(key, b"")

    def remove(self, quad: Quad, source: SourceId) -> Iterator[Write]:
        """Removes a quad of a source. The corpus must have it from this source."""
        return removed_at(self._keys, self.hashes.place(quad, source))


def removed_at(keys: CorpusKeys, place: bytes) -> Iterator[Write]:
    """Removes the quad at a place, with its index entries."""
    yield Write(keys.quad(place), None)
    for key in index_keys(keys, place):
        yield Write(key, None)


def index_keys(keys: CorpusKeys, place: bytes) -> list[bytes]:
    """The keys of all index entries of a quad, by the number of the order."""
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
    """Splits a record into the source's id and the quad, both still encoded."""
    end = _SOURCE_ID_BYTES + int.from_bytes(stored[:_SOURCE_ID_BYTES], "big")
    return stored[_SOURCE_ID_BYTES:end], stored[end:]


def matching_quads(snapshot: BatchedReads, hashes: QuadHashes, pattern: QuadPattern) -> Iterator[SourcedQuad]:
    """All quads that match a pattern, read in as many transactions as needed."""
    begin: bytes | None = b""
    while begin is not None:
        page, begin = snapshot.read(
            lambda view, b=begin: QuadReader(view, hashes).match(pattern, b, _KEYS_MAX)  # type: ignore[misc]
        )
        yield from page


def without_source(held: Holdings) -> Iterator[Write]:
    """Removes every quad of a source."""
    for entry in held.entries(Space.QUADS):
        yield from removed_at(held.snapshot.keys, place_at(RECORDS, entry.key))


def place_at(order: int, key: bytes) -> bytes:
    """The place of a quad, from its key in an order."""
    entry = key[-PLACE_BYTES:]
    if order == RECORDS:
        return entry
    if order == BY_SOURCE:
        return entry[SOURCE_BYTES:] + entry[:SOURCE_BYTES]
    hashes = {name: entry[at * HASH_BYTES :][:HASH_BYTES] for at, name in enumerate(_ORDERS[order])}
    return b"".join(hashes[name] for name in "spog") + entry[QUAD_BYTES:]


def indexed_place(keys: CorpusKeys, key: bytes) -> bytes:
    """The place of the quad of an index entry, whose key tells the order."""
    return place_at(key[len(keys.quad_entry(0, b"")) - 1], key)


def _placed(order: int, place: bytes) -> bytes:
    """The end of a quad's key in an order. Reverses `place_at`."""
    source = place[QUAD_BYTES:]
    if order == BY_SOURCE:
        return source + place[:QUAD_BYTES]
    hashes = {name: place[at * HASH_BYTES :][:HASH_BYTES] for at, name in enumerate("spog")}
    return b"".join(hashes[name] for name in _ORDERS[order]) + source


def _keys_of(keys: CorpusKeys, where: Range) -> tuple[KeyRange, bytes]:
    """The range of keys, and the prefix of all keys of its order."""
    if where.order == RECORDS:
        return keys.quads(where.prefix), keys.quad(b"")
    return keys.quad_entries(where.order, where.prefix), keys.quad_entry(where.order, b"")


def _prefix(order: str, bound: dict[str, bytes]) -> bytes:
    """The hashes of bound terms at the beginning of an order, up to the first that is not bound."""
    prefix = b""
    for name in order:
        if name not in bound:
            break
        prefix += bound[name]
    return prefix


def _matches(pattern: QuadPattern, found: SourcedQuad) -> bool:
    return pattern.matches(found.quad) and pattern.source in {None, found.source}

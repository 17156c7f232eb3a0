"""Which of the quads that a revision is to put are new, and their writes; in bounded memory, however many there are.

A quad may come twice in a file, but a revision writes a record once. The last ones are remembered; of those before, the
store itself tells: a large revision is staged while it is made, and what left our memory is staged long since.

What the commands that change quads share: making a change of them a revision of their corpus.

PutQuads.

ImportQuads.

the file, in a sealed spool -> read once: is all of it RDF? -> read again: one revision, in batches

RemoveQuads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, TypeVar

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.graphs.provenance_quads import is_derived
from drillcore_server.graphs.quad_model import (
    OWN,
    QUADS_MAX,
    Quad,
    QuadPattern,
    SourcedQuad,
    check_graph,
    check_pattern,
    check_quad,
)
from drillcore_server.graphs.quad_store import QuadHashes, QuadReader, QuadWrites, matching_quads, removed_at
from drillcore_server.graphs.rdf import QuadFile
from drillcore_server.hierarchy.source_model import registered
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, Revision, SourceId
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import KeyNumbers

REMEMBERED_MIN: Final = 20_000
"""Their writes are ten times what `Reviser` holds back before it stages: seven a quad, of 200 bytes each at least."""
_AT_ONCE: Final = 500
"""Looked for in one transaction."""


class NewQuads:
    """For one plan: counts what it went through."""

    def __init__(self, base: BatchedReads, make: QuadWrites) -> None:
        self._make = make
        self._base = base
        self._staged = base.at(Revision(base.revision + 1))
        self._last: set[bytes] = set()
        self._before: set[bytes] = set()
        self.added = 0
        self.known = 0
        """That were there already, of their source, or came before."""

    def of_source(self, quads: Iterable[Quad], source: SourceId) -> Iterator[Write]:
        return self.writes(SourcedQuad(one, source) for one in quads)

    def writes(self, quads: Iterable[SourcedQuad]) -> Iterator[Write]:
        """Of those that are new. May be gone through once."""
        coming = iter(quads)
        while batch := list(islice(coming, _AT_ONCE)):
            for place, (quad, source) in self._new(batch):
                yield from self._make.add_at(place, quad, source)

    def _new(self, batch: list[SourcedQuad]) -> list[tuple[bytes, SourcedQuad]]:
        place = self._make.hashes.place
        coming = {place(*one): one for one in batch}
        for known in [one for one in coming if one in self._last or one in self._before]:
            del coming[known]
        for known in self._there(list(coming)):
            del coming[known]
        self.added += len(coming)
        self.known += len(batch) - len(coming)
        self._remember(coming)
        return list(coming.items())

    def _there(self, places: list[bytes]) -> list[bytes]:
        snapshot = self._staged if self._before else self._base

        def there(view: CorpusAtRevision) -> list[bytes]:
            keys, revision = view.keys, view.revision
            return [one for one in places if versioned.get(view.tr, keys.quad(one), revision) is not None]

        return snapshot.read(there)

    def _remember(self, places: Iterable[bytes]) -> None:
        if len(self._last) >= REMEMBERED_MIN:
            self._before, self._last = self._last, set()
        self._last.update(places)


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PutQuads:
    """What a put or an import did, and the head it left."""

    revision: Revision
    added: int
    known: int
    """That were there already, of this source, or were given twice."""
    derived: int = 0
    """Of a file: told from the records of the corpus that it came from, and left out."""


PUT_QUADS = RecordKind(PutQuads)


@dataclass(frozen=True, slots=True)
class QuadPut:
    """Quads on their way into a corpus, as one revision: planned anew whenever others overtake it."""

    reviser: Reviser
    call: Call
    target: Target
    quads: Callable[[], Iterable[Quad]]
    """All of them, checked, as often as they are asked for."""
    source: SourceId
    derived: int = 0
    """That were left out of them."""

    def run(self) -> PutQuads:
        """Stores those that are new. If there are none, there is no new revision."""
        return self.reviser.revise(self.call, self.target, PUT_QUADS, self._plan)

    def _plan(self, corpus: Corpus, base: Revision) -> Plan[PutQuads] | NothingToChange[PutQuads]:
        sources = [self.source] if self.source else []
        number = self.reviser.make_keys(corpus, sources)
        snapshot = self.reviser.batched(corpus, base)
        new = NewQuads(snapshot, QuadWrites(self.reviser.keys, corpus.number, self.reviser.keyring))
        writes = new.of_source(self.quads(), self.source)
        first = next(writes, None)
        if first is None:
            return NothingToChange(self._put(base, 0, new.known), self.reviser.make_keys(corpus, []))

        def finish(_tr: Transaction, trail: Trail, _revision: Revision) -> None:
            trail.detail |= {"quads_added": new.added, "quads_known": new.known}
            if self.derived:
                trail.detail["quads_derived"] = self.derived

        return quads_plan(
            base,
            number,
            chain([first], writes, self._registered(corpus, snapshot)),
            lambda revision: self._put(revision, new.added, new.known),
            sources=sources,
            finish=finish,
        )

    def _put(self, revision: Revision, added: int, known: int) -> PutQuads:
        return PutQuads(revision, added, known, self.derived)

    def _registered(self, corpus: Corpus, snapshot: BatchedReads) -> Iterator[Write]:
        """The source, if the registry does not have it: so that an erasure finds it."""
        if not self.source or snapshot.read(lambda view: HierarchyReader(view).source(self.source)) is not None:
            return iter(())
        keys, keyring = self.reviser.keys, self.reviser.keyring
        make = HierarchyWrites(keys, corpus.tenant_id, corpus.number, keyring)
        return make.put_source(registered(self.source, self.call.at))


def quads_plan(
    base: Revision,
    number: KeyNumbers,
    writes: Iterable[Write],
    result: Callable[[Revision], R],
    *,
    sources: Collection[SourceId] = (),
    finish: Callable[[Transaction, Trail, Revision], None],
) -> Plan[R]:
    """A revision that changes nothing but quads."""
    return Plan(
        base=base,
        number=number,
        writes=writes,
        sections=(),
        documents_added=(),
        documents_removed=(),
        sources=sources,
        result=result,
        finish=finish,
    )


def check_source(source: str) -> SourceId:
    """An id that may be left out."""
    if len(source) > SOURCE_CHARACTERS_MAX:
        message = f"source_id has over {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    return SourceId(source)


def check_not_derived(quad: Quad, what: str) -> None:
    """What is told from the records of a corpus cannot be put."""
    if is_derived(quad):
        message = f"{what}: what {quad.graph} says of {OWN} is told from the records; put it into another graph"
        raise BadInput(Reason.RESERVED_QUAD, message, field="graph")


def put_quads(reviser: Reviser, call: Call, target: Target, quads: Sequence[Quad], source: SourceId) -> PutQuads:
    """Stores quads of a source, or of none, as one revision: all or none. Those that are there stay as they are."""
    if not 0 < len(quads) <= QUADS_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"put 1 to {QUADS_MAX} quads", field="quads")
    for place, one in enumerate(quads):
        check_quad(one, f"quads[{place}]")
        check_not_derived(one, f"quads[{place}]")
    return QuadPut(reviser, call, target, lambda: quads, source).run()


PROGRESS_EVERY: Final = 10_000
"""Quads."""


@dataclass(frozen=True, slots=True)
class QuadImport:
    target: Target
    source: SourceId
    file: QuadFile


def import_quads(reviser: Reviser, call: Call, wanted: QuadImport, progress: Callable[[int], object]) -> PutQuads:
    """Stores the quads of a file as one revision: all or none. `progress` is told how many were read so far.

    What another corpus told from its records is counted and left out: it is of no record here. Raises `Refused`:
    UNPARSABLE, INVALID_QUAD.
    """
    check_graph(wanted.file.graph, "target")
    begun = reviser.begin(call, wanted.target, PUT_QUADS)
    if begun.known is not None:
        return begun.known
    count = derived = 0
    for count, quad in enumerate(wanted.file.quads(), 1):
        derived += is_derived(quad)
        if count % PROGRESS_EVERY == 0:
            progress(count)
    progress(count)
    return QuadPut(reviser, call, wanted.target, lambda: _put(wanted.file), wanted.source, derived).run()


def _put(file: QuadFile) -> Iterator[Quad]:
    return (quad for quad in file.quads() if not is_derived(quad))


@dataclass(frozen=True, slots=True)
class RemovedQuads:
    revision: Revision
    removed: int
    """A quad counts once, whatever it was put of."""


REMOVED_QUADS = RecordKind(RemovedQuads)


@dataclass(frozen=True, slots=True)
class Unwanted:
    """What is to be removed: quads, or all that match a pattern."""

    quads: Sequence[Quad] = ()
    source: SourceId | None = None
    """That the quads are removed of; None: of whatever they were put of."""
    pattern: QuadPattern | None = None

    def check(self) -> None:
        if (self.pattern is None) == (not self.quads) or len(self.quads) > QUADS_MAX:
            raise BadInput(Reason.INVALID_ARGUMENT, f"name 1 to {QUADS_MAX} quads, or a pattern", field="quads")
        if self.pattern is not None:
            self._check_pattern(self.pattern)
        for place, one in enumerate(self.quads):
            check_quad(one, f"quads[{place}]")

    def _check_pattern(self, pattern: QuadPattern) -> None:
        check_pattern(pattern)
        if self.source is not None:
            message = "with a pattern, name the source in the pattern: else quads of every source would go"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")


def remove_quads(reviser: Reviser, call: Call, target: Target, unwanted: Unwanted) -> RemovedQuads:
    """Removes quads as one revision; earlier revisions still have them. What is not there need not be removed."""
    unwanted.check()

    def plan(corpus: Corpus, base: Revision) -> Plan[RemovedQuads] | NothingToChange[RemovedQuads]:
        hashes = QuadHashes.of(reviser.keyring, corpus.number)
        removal = _Removal(reviser.batched(corpus, base), hashes, unwanted)

        def finish(_tr: Transaction, trail: Trail, _revision: Revision) -> None:
            trail.detail["quads_removed"] = removal.removed

        number, writes = reviser.make_keys(corpus, []), removal.writes()
        first = next(writes, None)
        if first is None:
            return NothingToChange(RemovedQuads(base, 0), number)
        return quads_plan(
            base, number, chain([first], writes), lambda head: RemovedQuads(head, removal.removed), finish=finish
        )

    return reviser.revise(call, target, REMOVED_QUADS, plan)


class _Removal:
    """The writes of one plan; counts the quads as it goes."""

    def __init__(self, snapshot: BatchedReads, hashes: QuadHashes, unwanted: Unwanted) -> None:
        self._snapshot = snapshot
        self._hashes = hashes
        self._unwanted = unwanted
        self.removed = 0

    def writes(self) -> Iterator[Write]:
        before: Quad | None = None
        for quad, place in self._places():
            self.removed += quad != before
            before = quad
            yield from removed_at(self._snapshot.keys, place)

    def _places(self) -> Iterator[tuple[Quad, bytes]]:
        """Those of one quad follow each other."""
        pattern = self._unwanted.pattern
        if pattern is not None:
            for quad, source in matching_quads(self._snapshot, self._hashes, pattern):
                yield quad, self._hashes.place(quad, source)
            return
        quads = list(dict.fromkeys(self._unwanted.quads))
        for quad, places in zip(quads, self._snapshot.find(quads, self._places_of), strict=True):
            yield from ((quad, place) for place in places)

    def _places_of(self, view: CorpusAtRevision, quad: Quad) -> list[bytes]:
        quads, source = QuadReader(view, self._hashes), self._unwanted.source
        if source is None:
            return quads.places_of(quad)
        place = self._hashes.place(quad, source)
        return [place] if quads.has(place) else []

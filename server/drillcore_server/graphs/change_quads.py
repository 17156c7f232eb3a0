"""PutQuads, ImportQuads and RemoveQuads. Each makes one revision of the corpus, or none if nothing changes.

An import reads its file twice: first to check that all of it is valid, then to write it as one revision in batches.
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
from drillcore_server.hierarchy.source_model import source_without_document
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, Revision, SourceId
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import KeyNumbers

REMEMBERED_MIN: Final = 20_000
"""Quads that are remembered at least. A quad has seven writes of at least 200 bytes, so the writes of these quads are
ten times the amount that `Reviser` holds back before it stages."""
_BATCH: Final = 500
"""Quads that are looked up in one transaction."""


class NewQuads:
    """Makes the writes of those quads that are new, and counts them, for one plan and in bounded memory.

    A quad may come twice in a file, but a revision must write its record once. The newest quads are remembered. Older
    ones are looked up in the store: a large revision is staged while it is made, and quads that are no longer
    remembered have long been staged.
    """

    def __init__(self, base: BatchedReads, make: QuadWrites) -> None:
        self._make = make
        self._base = base
        self._staged = base.each_anew().at(Revision(base.revision + 1))
        self._last: set[bytes] = set()
        self._before: set[bytes] = set()
        self.added = 0
        self.known = 0
        """Quads that the corpus already had from their source, or that came earlier."""

    def of_source(self, quads: Iterable[Quad], source: SourceId) -> Iterator[Write]:
        return self.writes(SourcedQuad(quad, source) for quad in quads)

    def writes(self, quads: Iterable[SourcedQuad]) -> Iterator[Write]:
        """The writes of the new quads. Can be iterated once."""
        coming = iter(quads)
        while batch := list(islice(coming, _BATCH)):
            for place, (quad, source) in self._new(batch):
                yield from self._make.add_at(place, quad, source)

    def _new(self, batch: list[SourcedQuad]) -> list[tuple[bytes, SourcedQuad]]:
        place = self._make.hashes.place
        coming = {place(*sourced): sourced for sourced in batch}
        for known in [at for at in coming if at in self._last or at in self._before]:
            del coming[known]
        for known in self._stored(list(coming)):
            del coming[known]
        self.added += len(coming)
        self.known += len(batch) - len(coming)
        self._remember(coming)
        return list(coming.items())

    def _stored(self, places: list[bytes]) -> list[bytes]:
        snapshot = self._staged if self._before else self._base
        return snapshot.read(lambda view: QuadReader(view, self._make.hashes).places_there(places))

    def _remember(self, places: Iterable[bytes]) -> None:
        if len(self._last) >= REMEMBERED_MIN:
            self._before, self._last = self._last, set()
        self._last.update(places)


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PutQuads:
    """Result of a put or an import, with the head after it."""

    revision: Revision
    added: int
    known: int
    """Quads that the corpus already had from this source, or that were given twice."""
    derived: int = 0
    """Quads of a file that were left out because they were computed from records of another corpus."""


PUT_QUADS = RecordKind(PutQuads)


@dataclass(frozen=True, slots=True)
class QuadPut:
    """Puts quads into a corpus as one revision. Plans again whenever another revision comes first."""

    reviser: Reviser
    call: Call
    target: Target
    quads: Callable[[], Iterable[Quad]]
    """Returns all quads, already checked. May be called several times."""
    source: SourceId
    derived: int = 0
    """Number of computed quads that were left out."""

    def run(self) -> PutQuads:
        """Stores the new quads. Makes no revision if there are none."""
        return self.reviser.revise(self.call, self.target, PUT_QUADS, self._plan)

    def _plan(self, snapshot: BatchedReads) -> Plan[PutQuads] | NothingToChange[PutQuads]:
        corpus, base = snapshot.corpus, snapshot.revision
        sources = [self.source] if self.source else []
        number = self.reviser.make_keys(corpus, sources)
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
        """Registers the source if it is unknown, so that it can be erased."""
        if not self.source or snapshot.read(lambda view: HierarchyReader(view).source(self.source)) is not None:
            return iter(())
        keys, keyring = self.reviser.keys, self.reviser.keyring
        make = HierarchyWrites(keys, corpus.tenant_id, corpus.number, keyring)
        return make.put_source(source_without_document(self.source, self.call.at))


def quads_plan(
    base: Revision,
    number: KeyNumbers,
    writes: Iterable[Write],
    result: Callable[[Revision], R],
    *,
    sources: Collection[SourceId] = (),
    finish: Callable[[Transaction, Trail, Revision], None],
) -> Plan[R]:
    """The plan of a revision that changes only quads."""
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
    """The id, which may be empty. Raises `BadInput` if it is too long."""
    if len(source) > SOURCE_CHARACTERS_MAX:
        message = f"source_id must have at most {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    return SourceId(source)


def check_not_derived(quad: Quad, what: str) -> None:
    """Raises `BadInput` for a quad that only the server may compute."""
    if is_derived(quad):
        message = f"{what}: the server computes the quads of {quad.graph} about {OWN}; put the quad into another graph"
        raise BadInput(Reason.RESERVED_QUAD, message, field="graph")


def put_quads(reviser: Reviser, call: Call, target: Target, quads: Sequence[Quad], source: SourceId) -> PutQuads:
    """Stores quads of one source, or without a source, as one revision: all or none. Known quads stay unchanged.

    A repeated request returns its first result. Raises `Refused`, with INVALID_QUAD or RESERVED_QUAD for a quad that
    cannot be put.
    """
    if not 0 < len(quads) <= QUADS_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"quads must have 1 to {QUADS_MAX} entries", field="quads")
    for place, quad in enumerate(quads):
        check_quad(quad, f"quads[{place}]")
        check_not_derived(quad, f"quads[{place}]")
    return QuadPut(reviser, call, target, lambda: quads, source).run()


PROGRESS_EVERY: Final = 10_000
"""Quads between two reports of progress."""


@dataclass(frozen=True, slots=True)
class QuadImport:
    target: Target
    source: SourceId
    file: QuadFile


def import_quads(reviser: Reviser, call: Call, wanted: QuadImport, progress: Callable[[int], object]) -> PutQuads:
    """Stores the quads of a file as one revision: all or none. `progress` gets the number of quads that were read.

    Quads that another corpus computed from its records are counted and left out, because this corpus does not have
    those records. A repeated request returns its first result. Raises `Refused`, with UNPARSABLE or INVALID_QUAD for a
    file that cannot be stored.
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
    return QuadPut(reviser, call, wanted.target, lambda: _own_quads(wanted.file), wanted.source, derived).run()


def _own_quads(file: QuadFile) -> Iterator[Quad]:
    return (quad for quad in file.quads() if not is_derived(quad))


@dataclass(frozen=True, slots=True)
class RemovedQuads:
    revision: Revision
    removed: int
    """Number of quads. A quad of several sources counts once."""


REMOVED_QUADS = RecordKind(RemovedQuads)


@dataclass(frozen=True, slots=True)
class QuadSelection:
    """The quads to remove: either listed, or all that match a pattern."""

    quads: Sequence[Quad] = ()
    source: SourceId | None = None
    """The source from which the listed quads are removed. None removes them from all sources."""
    pattern: QuadPattern | None = None

    def check(self) -> None:
        if (self.pattern is None) == (not self.quads) or len(self.quads) > QUADS_MAX:
            message = f"give either quads, 1 to {QUADS_MAX} of them, or a pattern"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="quads")
        if self.pattern is not None:
            self._check_pattern(self.pattern)
        for place, quad in enumerate(self.quads):
            check_quad(quad, f"quads[{place}]")

    def _check_pattern(self, pattern: QuadPattern) -> None:
        check_pattern(pattern)
        if self.source is not None:
            message = "source_id is for listed quads; with a pattern, set pattern.source_id"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")


def remove_quads(reviser: Reviser, call: Call, target: Target, selection: QuadSelection) -> RemovedQuads:
    """Removes quads as one revision. Earlier revisions keep them. Quads that the corpus does not have are skipped.

    A repeated request returns its first result.
    """
    selection.check()

    def plan(snapshot: BatchedReads) -> Plan[RemovedQuads] | NothingToChange[RemovedQuads]:
        corpus, base = snapshot.corpus, snapshot.revision
        hashes = QuadHashes.of(reviser.keyring, corpus.number)
        removal = _Removal(snapshot, hashes, selection)

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
    """Makes the writes of one plan, and counts the removed quads."""

    def __init__(self, snapshot: BatchedReads, hashes: QuadHashes, selection: QuadSelection) -> None:
        self._snapshot = snapshot
        self._hashes = hashes
        self._selection = selection
        self.removed = 0

    def writes(self) -> Iterator[Write]:
        before: Quad | None = None
        for quad, place in self._places():
            self.removed += quad != before
            before = quad
            yield from removed_at(self._snapshot.keys, place)

    def _places(self) -> Iterator[tuple[Quad, bytes]]:
        """Every place to remove, with its quad. Places of the same quad follow each other."""
        pattern = self._selection.pattern
        if pattern is not None:
            for quad, source in matching_quads(self._snapshot, self._hashes, pattern):
                yield quad, self._hashes.place(quad, source)
            return
        quads = list(dict.fromkeys(self._selection.quads))
        for quad, places in zip(quads, self._snapshot.together(quads, self._places_of), strict=True):
            yield from ((quad, place) for place in places)

    def _places_of(self, view: CorpusAtRevision, quads: Sequence[Quad]) -> list[list[bytes]]:
        reader, source = QuadReader(view, self._hashes), self._selection.source
        if source is None:
            return reader.places_of(quads)
        wanted = [self._hashes.place(quad, source) for quad in quads]
        known = set(reader.places_there(wanted))
        return [[place] if place in known else [] for place in wanted]

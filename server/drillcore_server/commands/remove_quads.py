"""RemoveQuads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.quad_changing import NothingToChange, quads_plan, some
from drillcore_server.commands.revise import Plan, Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.domain.quads import QUADS_MAX, Quad, QuadPattern, check_pattern, check_quad
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.quads import QuadHashes, QuadsView, matching_quads, removed_at
from drillcore_server.store.records import RecordKind
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.writes import Write


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


def remove_quads(ingester: Ingester, call: Call, target: Target, unwanted: Unwanted) -> RemovedQuads:
    """Removes quads as one revision; earlier revisions still have them. What is not there need not be removed."""
    unwanted.check()
    begun = ingester.reviser.begin(call, target, REMOVED_QUADS)
    if begun.known is not None:
        return begun.known
    heads: list[Revision] = []

    def plan(corpus: Corpus, base: Revision) -> Plan[RemovedQuads]:
        heads.append(base)
        hashes = QuadHashes.of(ingester.keyring, corpus.number)
        removal = _Removal(ingester.snapshot(corpus, base), hashes, unwanted)

        def finish(_tr: Transaction, trail: Trail, _revision: Revision) -> None:
            trail.detail["quads_removed"] = removal.removed

        number = ingester.make_keys(corpus, [])
        made = some(removal.writes())
        return quads_plan(base, number, made, lambda head: RemovedQuads(head, removal.removed), finish=finish)

    try:
        return ingester.reviser.revise(call, target, REMOVED_QUADS, plan)
    except NothingToChange:
        number = ingester.make_keys(begun.corpus, [])
        return ingester.reviser.leave(call, target, REMOVED_QUADS, number, RemovedQuads(heads[-1], 0))


class _Removal:
    """The writes of one plan; counts the quads as it goes."""

    def __init__(self, snapshot: Snapshot, hashes: QuadHashes, unwanted: Unwanted) -> None:
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

    def _places_of(self, view: CorpusView, quad: Quad) -> list[bytes]:
        quads, source = QuadsView(view, self._hashes), self._unwanted.source
        if source is None:
            return quads.places_of(quad)
        place = self._hashes.place(quad, source)
        return [place] if quads.has(place) else []

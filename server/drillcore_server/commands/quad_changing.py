"""What the commands that change quads share: making a change of them a revision of their corpus."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.new_quads import NewQuads
from drillcore_server.commands.revise import Plan, Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.domain.iris import OWN
from drillcore_server.domain.provenance_quads import is_derived
from drillcore_server.domain.quads import Quad
from drillcore_server.domain.sources import SOURCE_CHARACTERS_MAX, registered
from drillcore_server.store.hierarchy import HierarchyWrites
from drillcore_server.store.quads import QuadWrites
from drillcore_server.store.records import RecordKind
from drillcore_server.store.sealed import KeyNumbers
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.writes import Write

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


class NothingToChange(Exception):  # noqa: N818 - a turn of events, not an error
    """The corpus is as it was asked to be."""


@dataclass(frozen=True, slots=True)
class QuadPut:
    """Quads on their way into a corpus, as one revision: planned anew whenever others overtake it."""

    ingester: Ingester
    call: Call
    target: Target
    quads: Callable[[], Iterable[Quad]]
    """All of them, checked, as often as they are asked for."""
    source: SourceId
    derived: int = 0
    """That were left out of them."""
    plans: list[tuple[Revision, NewQuads]] = field(default_factory=list)

    def run(self) -> PutQuads:
        """Stores those that are new. If there are none, there is no new revision."""
        reviser = self.ingester.reviser
        begun = reviser.begin(self.call, self.target, PUT_QUADS)
        if begun.known is not None:
            return begun.known
        try:
            return reviser.revise(self.call, self.target, PUT_QUADS, self._plan)
        except NothingToChange:
            base, new = self.plans[-1]
            number = self.ingester.make_keys(begun.corpus, [])
            return reviser.leave(self.call, self.target, PUT_QUADS, number, self._put(base, 0, new.known))

    def _plan(self, corpus: Corpus, base: Revision) -> Plan[PutQuads]:
        sources = [self.source] if self.source else []
        number = self.ingester.make_keys(corpus, sources)
        snapshot = self.ingester.snapshot(corpus, base)
        new = NewQuads(snapshot, QuadWrites(self.ingester.unit.keys, corpus.number, self.ingester.keyring))
        self.plans.append((base, new))

        def finish(_tr: Transaction, trail: Trail, _revision: Revision) -> None:
            trail.detail |= {"quads_added": new.added, "quads_known": new.known}
            if self.derived:
                trail.detail["quads_derived"] = self.derived

        return quads_plan(
            base,
            number,
            chain(some(new.of_source(self.quads(), self.source)), self._registered(corpus, snapshot)),
            lambda revision: self._put(revision, new.added, new.known),
            sources=sources,
            finish=finish,
        )

    def _put(self, revision: Revision, added: int, known: int) -> PutQuads:
        return PutQuads(revision, added, known, self.derived)

    def _registered(self, corpus: Corpus, snapshot: Snapshot) -> Iterator[Write]:
        """The source, if the registry does not have it: so that an erasure finds it."""
        if not self.source or snapshot.read(lambda view: view.source(self.source)) is not None:
            return iter(())
        keys, keyring = self.ingester.unit.keys, self.ingester.keyring
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


def some(writes: Iterator[Write]) -> Iterator[Write]:
    """The same writes. Raises `NothingToChange` at once if there are none."""
    first = next(writes, None)
    if first is None:
        raise NothingToChange
    return chain([first], writes)


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

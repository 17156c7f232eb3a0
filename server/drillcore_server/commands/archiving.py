"""What archiving facts and bringing them back share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from drillcore_fdb.engine import Transaction
from drillcore_server.commands.fact_changing import ChangedFact, FactDesk
from drillcore_server.commands.fact_library import check_facts
from drillcore_server.commands.revise import Plan
from drillcore_server.commands.unit import Call
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.facts import FACTS_MAX, Fact, FactChange
from drillcore_server.domain.ids import FactId, Revision, TenantId
from drillcore_server.store import fact_accesses
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class Moved:
    facts: int
    """Those that were not there already."""
    revision: Revision


@dataclass(frozen=True, slots=True)
class Move:
    change: Callable[[Fact], Fact | None]
    """The fact as it should be; None if it is so already. Raises `Refused`."""
    what: FactChange
    counts_as_access: bool = False


MOVED = RecordKind(Moved)


class _Unchanged(Exception):  # noqa: N818 - a turn of events, not an error
    def __init__(self, corpus: Corpus, base: Revision) -> None:
        super().__init__()
        self.corpus = corpus
        self.base = base


def move_facts(desk: FactDesk, call: Call, tenant: TenantId | None, facts: Sequence[FactId], move: Move) -> Moved:
    """Changes facts of one corpus as one revision: all or none. Without a change there is no revision."""
    ids = check_facts(facts, FACTS_MAX)
    target = desk.target(call, tenant, ids)
    reviser = desk.ingester.reviser
    try:
        return reviser.revise(call, target, MOVED, lambda corpus, base: _plan(desk, call, corpus, base, ids, move))
    except _Unchanged as unchanged:
        number = desk.ingester.make_keys(unchanged.corpus, [])
        return reviser.leave(call, target, MOVED, number, Moved(0, unchanged.base))


def _plan(desk: FactDesk, call: Call, corpus: Corpus, base: Revision, ids: Sequence[FactId], move: Move) -> Plan[Moved]:
    pairs = [(before, move.change(before)) for before in desk.facts(corpus, base, ids)]
    changes = [ChangedFact(before, after, move.what) for before, after in pairs if after is not None]
    if not changes:
        raise _Unchanged(corpus, base)
    changed = [one.after.id for one in changes]

    def finish(tr: Transaction, _trail: Trail, _revision: Revision) -> None:
        if move.counts_as_access:
            fact_accesses.note(tr, desk.library.unit.keys.of_corpus(corpus.number), changed, call.at)

    return replace(desk.plan(corpus, base, changes, lambda revision: Moved(len(changes), revision)), finish=finish)

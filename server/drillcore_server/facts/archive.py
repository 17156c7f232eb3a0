"""What archiving facts and bringing them back share.

ArchiveFacts.

RestoreFacts.

Housekeeping: archives facts that nobody has read for long, so that searches do not carry them.

A walk over all facts of a corpus, page by page, once a day. How far it is, is stored: a server that is stopped, or
killed, goes on there, and several at once do no harm. Of facts that were read lately only that is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.facts import archive_state as fact_upkeep
from drillcore_server.facts import counters as fact_accesses
from drillcore_server.facts import store as facts
from drillcore_server.facts.archive_state import Upkeep
from drillcore_server.facts.change import ChangedFact, FactPlanner
from drillcore_server.facts.keeper import FactKeeper, Upkeeping
from drillcore_server.facts.model import FACTS_MAX, FOUND, Fact, FactChange
from drillcore_server.facts.reader import check_facts
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.revise import NothingToChange, Plan
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import FactId, Revision, TenantId
from drillcore_server.storage.records import RecordKind


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


def move_facts(planner: FactPlanner, call: Call, tenant: TenantId | None, facts: Sequence[FactId], move: Move) -> Moved:
    """Changes facts of one corpus as one revision: all or none. Without a change there is no revision."""
    ids = check_facts(facts, FACTS_MAX)
    target = planner.target(call, tenant, ids)
    return planner.reviser.revise(
        call, target, MOVED, lambda corpus, base: _plan(planner, call, corpus, base, ids, move)
    )


def _plan(
    planner: FactPlanner, call: Call, corpus: Corpus, base: Revision, ids: Sequence[FactId], move: Move
) -> Plan[Moved] | NothingToChange[Moved]:
    pairs = [(before, move.change(before)) for before in planner.facts(corpus, base, ids)]
    changes = [ChangedFact(before, after, move.what) for before, after in pairs if after is not None]
    if not changes:
        return NothingToChange(Moved(0, base), planner.reviser.make_keys(corpus, []))
    changed = [one.after.id for one in changes]

    def finish(tr: Transaction, _trail: Trail, _revision: Revision) -> None:
        if move.counts_as_access:
            fact_accesses.note(tr, planner.reviser.keys.of_corpus(corpus.number), changed, call.at)

    return replace(planner.plan(corpus, base, changes, lambda revision: Moved(len(changes), revision)), finish=finish)


def archive_facts(planner: FactPlanner, call: Call, *, tenant: TenantId | None, facts: Sequence[FactId]) -> Moved:
    """Takes facts out of the search index, whoever has read them and when. They stay readable by their ids."""

    def archived(fact: Fact) -> Fact | None:
        if fact.status not in FOUND:
            message = f"the fact {fact.id} is {fact.status.name}: it is in no search index to be taken out of"
            raise NotReady(Reason.ILLEGAL_TRANSITION, message)
        return fact.archived(call.at) if fact.archived_at is None else None

    return move_facts(planner, call, tenant, facts, Move(archived, FactChange.ARCHIVED))


def restore_facts(planner: FactPlanner, call: Call, *, tenant: TenantId | None, facts: Sequence[FactId]) -> Moved:
    """Brings archived facts back. It counts as an access of each, or the next archiving would take them again."""

    def restored(fact: Fact) -> Fact | None:
        return None if fact.archived_at is None else fact.restored(call.at)

    return move_facts(planner, call, tenant, facts, Move(restored, FactChange.RESTORED, counts_as_access=True))


WORD: Final = "facts archived that nobody read"
_EVERY: Final = timedelta(days=1)
_KEYS_MAX: Final = 2_000
"""Looked at in one transaction."""


@dataclass(frozen=True, slots=True)
class _Page:
    unread: Sequence[FactId]
    last: FactId | None
    """None: there are no more."""


class Archiver:
    def __init__(self, keeper: FactKeeper, after: timedelta) -> None:
        """`after` is how long a fact stays that nobody reads; nothing at all: for ever."""
        self._keeper = keeper
        self._after = after

    def archive(self, corpus: Corpus, now: datetime, stopping: Callable[[], bool]) -> int:
        """Goes through a corpus, if that is due; how many facts were archived.

        Raises `Refused` or `EngineError` if it cannot.
        """
        keys = self._keeper.keys.of_corpus(corpus.number)
        walk = self._keeper.engine.run(lambda tr: fact_upkeep.read(tr.snapshot, keys))
        among = partial(self._unread, keys=keys, now=now)
        upkeep = Upkeeping(WORD, partial(self._archived, now=now), FactChange.ARCHIVED, among)
        count = 0
        while self._is_due(walk, now) and not stopping():
            page = self._page(self._keeper.head(corpus), walk.after, now)
            count += self._keeper.apply(corpus, page.unread, upkeep, now, stopping)
            if stopping():
                break
            walk = self._move(keys, walk, Upkeep(page.last, walk.ended_at if page.last else now))
        return count

    def _is_due(self, walk: Upkeep, now: datetime) -> bool:
        if not self._after:
            return False
        return walk.after is not None or walk.ended_at is None or now - walk.ended_at >= _EVERY

    def _move(self, keys: CorpusKeys, before: Upkeep, now: Upkeep) -> Upkeep:
        self._keeper.engine.run(lambda tr: fact_upkeep.write(tr, keys, before, now))
        return now

    def _page(self, head: BatchedReads, after: FactId | None, now: datetime) -> _Page:
        def look(view: CorpusAtRevision) -> _Page:
            entries, last = facts.page(view, after, _KEYS_MAX)
            unread = set(self._unread(view.tr, [facts.fact_id(one.key) for one in entries], view.keys, now))
            sealed = (one for one in entries if facts.fact_id(one.key) in unread)
            opened = [facts.FACT.decode(view.sealed.opened(one).value) for one in sealed]
            return _Page([one.id for one in opened if self._archived(one, now) is not None], last)

        return head.read(look)

    def _unread(self, tr: Reader, ids: Sequence[FactId], keys: CorpusKeys, now: datetime) -> list[FactId]:
        """With a transaction's own reads: a fact that is read at this very moment is not archived."""
        accesses = zip(ids, fact_accesses.read(tr, keys, ids), strict=True)
        return [one for one, access in accesses if access.last_at is None or access.last_at < now - self._after]

    def _archived(self, fact: Fact, now: datetime) -> Fact | None:
        # Changed lately is as good as read: what its source says again must not be put away the next day.
        if not fact.is_searched or fact.modified_at >= now - self._after:
            return None
        return fact.archived(now)

"""ArchiveFacts, RestoreFacts, and the background work that archives facts nobody has read for long.

An archived fact is not in the search index. It stays readable by its id.

Once a day the background work walks through all facts of a corpus, page by page. The position of the walk is stored, so
any server can continue the walk of a stopped one, and several at once do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.facts import store as facts
from drillcore_server.facts.change import FactPlanner
from drillcore_server.facts.fact_reads import check_facts
from drillcore_server.facts.keeper import FactKeeper, FactUpkeep
from drillcore_server.facts.model import FACTS_MAX, SEARCHED_STATUSES, ChangedFact, Fact, FactChange
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.revise import NothingToChange, Plan
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import BlockId, FactId, Revision, TenantId
from drillcore_server.storage.records import RecordKind


@dataclass(frozen=True, slots=True)
class Moved:
    facts: int
    """How many facts changed. Facts that were archived or restored already do not count."""
    revision: Revision


@dataclass(frozen=True, slots=True)
class Move:
    change: Callable[[Fact], Fact | None]
    """Returns the changed fact, or None if there is nothing to change. Raises `Refused`."""
    what: FactChange
    counts_as_access: bool = False


MOVED = RecordKind(Moved)


def archive_facts(planner: FactPlanner, call: Call, *, tenant: TenantId | None, facts: Sequence[FactId]) -> Moved:
    """Takes facts out of the search index, even if they were read recently. All or none.

    Raises `NotReady` (ILLEGAL_TRANSITION) for a fact that is deleted or quarantined.
    """

    def archived(fact: Fact) -> Fact | None:
        if fact.status not in SEARCHED_STATUSES:
            message = f"the fact {fact.id} is {fact.status.name}; only ACTIVE and STALE facts can be archived"
            raise NotReady(Reason.ILLEGAL_TRANSITION, message)
        return fact.archived(call.at) if fact.archived_at is None else None

    return _change_facts(planner, call, tenant, facts, Move(archived, FactChange.ARCHIVED))


def restore_facts(planner: FactPlanner, call: Call, *, tenant: TenantId | None, facts: Sequence[FactId]) -> Moved:
    """Brings archived facts back into the search index. All or none.

    Restoring counts as an access. Otherwise the next walk would archive the facts again.
    """

    def restored(fact: Fact) -> Fact | None:
        return None if fact.archived_at is None else fact.restored(call.at)

    return _change_facts(planner, call, tenant, facts, Move(restored, FactChange.RESTORED, counts_as_access=True))


def _change_facts(
    planner: FactPlanner, call: Call, tenant: TenantId | None, facts: Sequence[FactId], move: Move
) -> Moved:
    """Changes facts of one corpus as one revision. If nothing changes, makes no revision."""
    ids = check_facts(facts, FACTS_MAX)
    target = planner.target(call, tenant, ids)
    return planner.reviser.revise(call, target, MOVED, lambda snapshot: _plan(planner, call, snapshot, ids, move))


def _plan(
    planner: FactPlanner, call: Call, snapshot: BatchedReads, ids: Sequence[FactId], move: Move
) -> Plan[Moved] | NothingToChange[Moved]:
    pairs = [(before, move.change(before)) for before in planner.facts(snapshot, ids)]
    changes = [ChangedFact(before, after, move.what) for before, after in pairs if after is not None]
    if not changes:
        return NothingToChange(Moved(0, snapshot.revision), planner.reviser.make_keys(snapshot.corpus, []))
    changed_ids = [change.after.id for change in changes]

    def finish(tr: Transaction, _trail: Trail, _revision: Revision) -> None:
        if move.counts_as_access:
            facts.note_accesses(tr, snapshot.keys, changed_ids, call.at)

    return replace(planner.plan(snapshot, changes, lambda revision: Moved(len(changes), revision)), finish=finish)


@dataclass(frozen=True, slots=True)
class ArchiveWalk:
    """How far the server has walked through the facts of a corpus to archive those that nobody reads."""

    after: BlockId | None = None
    """The last block of facts that was looked at. None if no walk is under way."""
    ended_at: datetime | None = None
    """When the last complete walk ended."""


ARCHIVE_WALK = RecordKind(ArchiveWalk)


def _read_walk(tr: Reader, keys: CorpusKeys) -> ArchiveWalk:
    return ARCHIVE_WALK.read(tr, keys.fact_upkeep()) or ArchiveWalk()


def _move_walk(tr: Transaction, keys: CorpusKeys, before: ArchiveWalk, now: ArchiveWalk) -> None:
    """Stores the new position, unless another server has moved the walk meanwhile."""
    if _read_walk(tr, keys) == before:
        ARCHIVE_WALK.write(tr, keys.fact_upkeep(), now)


_UPKEEP_NAME: Final = "facts archived that nobody read"
_EVERY: Final = timedelta(days=1)
_KEYS_MAX: Final = 300
"""Keys that one transaction looks at."""


@dataclass(frozen=True, slots=True)
class _Page:
    unread: Sequence[FactId]
    last: BlockId | None
    """The last block of the page. None if no facts follow."""


class Archiver:
    def __init__(self, keeper: FactKeeper, after: timedelta) -> None:
        """`after` is how long an unread fact stays in the search index. Zero turns archiving off."""
        self._keeper = keeper
        self._after = after

    def archive(self, corpus: Corpus, now: datetime, stopping: Callable[[], bool]) -> int:
        """Walks through a corpus if a walk is due. Returns how many facts were archived.

        Raises `Refused` or `EngineError` if it fails. May be called again: it continues at the stored position.
        """
        keys = self._keeper.keys.of_corpus(corpus.number)
        walk = self._keeper.engine.run(lambda tr: _read_walk(tr.snapshot, keys))
        applies_to = partial(self._unread, keys=keys, now=now)
        upkeep = FactUpkeep(_UPKEEP_NAME, partial(self._archived, now=now), FactChange.ARCHIVED, applies_to)
        count = 0
        while self._is_due(walk, now) and not stopping():
            page = self._page(self._keeper.head(corpus), walk.after, now)
            count += self._keeper.apply(corpus, page.unread, upkeep, now, stopping)
            if stopping():
                break
            walk = self._move(keys, walk, ArchiveWalk(page.last, walk.ended_at if page.last else now))
        return count

    def _is_due(self, walk: ArchiveWalk, now: datetime) -> bool:
        if not self._after:
            return False
        return walk.after is not None or walk.ended_at is None or now - walk.ended_at >= _EVERY

    def _move(self, keys: CorpusKeys, before: ArchiveWalk, now: ArchiveWalk) -> ArchiveWalk:
        self._keeper.engine.run(lambda tr: _move_walk(tr, keys, before, now))
        return now

    def _page(self, head: BatchedReads, after: BlockId | None, now: datetime) -> _Page:
        def look(view: CorpusAtRevision) -> _Page:
            blocks, last = facts.page(view, after, _KEYS_MAX)
            wanted = [fact.id for block in blocks for fact in block.facts if self._archived(fact, now) is not None]
            return _Page(self._unread(view.tr, wanted, view.keys, now), last)

        return head.read(look)

    def _unread(self, tr: Reader, ids: Sequence[FactId], keys: CorpusKeys, now: datetime) -> list[FactId]:
        """The facts that nobody has read for long.

        The transaction that commits asks again, and its reads conflict: a fact that is read meanwhile stays.
        """
        accesses = zip(ids, facts.read_accesses(tr, keys, ids), strict=True)
        return [fact for fact, access in accesses if access.last_at is None or access.last_at < now - self._after]

    def _archived(self, fact: Fact, now: datetime) -> Fact | None:
        # A recent change counts like a read: a fact that its source states again must not be archived the next day.
        if not fact.is_searched or fact.modified_at >= now - self._after:
            return None
        return fact.archived(now)

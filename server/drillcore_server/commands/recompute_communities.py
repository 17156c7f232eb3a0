"""RecomputeCommunities: finds the communities of a corpus anew, and makes them its next revision.

    facts at revision R -> a process finds communities -> what differs from those stored, on the head as it is now

Nobody waits for it but its caller: reads and writes go on, and what they change meanwhile is taken into account when
the revision is planned.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime

from drillcore_fdb.engine import Transaction
from drillcore_server.commands.community_facts import Assignment
from drillcore_server.commands.community_plan import CommunityPlan, plan_communities
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.revise import Plan, Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.communities import CommunityRun, Trigger
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import Revision
from drillcore_server.store import communities
from drillcore_server.store.communities import CommunityWrites
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class Recomputed:
    run: CommunityRun | None
    """None if there was none yet, and one is under way."""
    changed: bool
    """Whether it made a revision."""
    running: bool = False
    """Whether it goes on without the caller, who has no more time."""


RECOMPUTED = RecordKind(Recomputed)


class _Unchanged(Exception):  # noqa: N818 - a turn of events, not an error
    """The corpus has these communities already, or newer ones."""

    def __init__(self, run: CommunityRun) -> None:
        super().__init__()
        self.run = run


def settle_communities(
    ingester: Ingester, call: Call, target: Target, assignment: Assignment, size_min: int, trigger: Trigger
) -> Recomputed:
    """Makes what was found the corpus's next revision, if that changes anything. Raises `Refused`."""
    settling = _Settling(ingester, assignment, size_min, trigger, call.at)
    try:
        return ingester.reviser.revise(call, target, RECOMPUTED, settling.plan)
    except _Unchanged as unchanged:
        run = unchanged.run
        corpus, _ = ingester.reviser.find(call, target)
        keys = ingester.unit.keys.of_corpus(corpus.number)
        return ingester.reviser.leave(
            call,
            target,
            RECOMPUTED,
            ingester.make_keys(corpus, []),
            Recomputed(run, changed=False),
            lambda tr, trail, _revision: _note_run(tr, trail, keys, run),
        )


class _Settling:
    def __init__(
        self, ingester: Ingester, assignment: Assignment, size_min: int, trigger: Trigger, now: datetime
    ) -> None:
        self._ingester = ingester
        self._assignment = assignment
        self._size_min = size_min
        self._trigger = trigger
        self._now = now

    def plan(self, corpus: Corpus, base: Revision) -> Plan[Recomputed]:
        """On the corpus as it is at `base`. Raises `_Unchanged` if there is nothing to write."""
        snapshot = self._ingester.snapshot(corpus, base)
        keys = snapshot.keys
        last = self._ingester.engine.run(lambda tr: communities.last_run(tr, keys))
        if last is not None and last.of_revision > self._assignment.of_revision:
            raise _Unchanged(last)
        make = CommunityWrites(keys, corpus.number, self._ingester.keyring)
        planned = plan_communities(corpus.id, self._assignment, self._size_min, snapshot, make, self._now)
        run = self._run(planned, base)
        if not planned.writes:
            raise _Unchanged(run)
        return Plan(
            base=base,
            number=self._ingester.make_keys(corpus, []),
            writes=planned.writes,
            sections=(),
            documents_added=(),
            documents_removed=(),
            sources=(),
            result=lambda revision: Recomputed(replace(run, revision=revision), changed=True),
            communities=True,
            finish=lambda tr, trail, revision: _note_run(tr, trail, keys, replace(run, revision=revision)),
        )

    def _run(self, planned: CommunityPlan, revision: Revision) -> CommunityRun:
        return CommunityRun(
            at=self._now,
            of_revision=self._assignment.of_revision,
            revision=revision,
            facts=len(self._assignment.facts.ids),
            communities=planned.communities,
            trigger=self._trigger,
            took_s=time.monotonic() - self._assignment.began_s,
        )


def _note_run(tr: Transaction, trail: Trail, keys: CorpusKeys, run: CommunityRun) -> None:
    """The run as the last one, unless it has been overtaken by one of newer facts."""
    last = communities.last_run(tr, keys)
    if last is None or last.of_revision <= run.of_revision:
        communities.put_run(tr, keys, run)
    trail.detail |= {
        "trigger": run.trigger.value,
        "of_revision": run.of_revision,
        "facts": run.facts,
        "communities": run.communities,
    }

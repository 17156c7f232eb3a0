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
from drillcore_server.communities import store as communities
from drillcore_server.communities.community_writes import CommunityPlan, plan_communities
from drillcore_server.communities.model import CommunityRun, Trigger
from drillcore_server.communities.run import Assignment
from drillcore_server.communities.store import CommunityWrites
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.records import RecordKind


@dataclass(frozen=True, slots=True)
class Recomputed:
    run: CommunityRun | None
    """None if there was none yet, and one is under way."""
    changed: bool
    """Whether it made a revision."""
    running: bool = False
    """Whether it goes on without the caller, who has no more time."""


RECOMPUTED = RecordKind(Recomputed)


def settle_communities(
    reviser: Reviser, call: Call, target: Target, assignment: Assignment, size_min: int, trigger: Trigger
) -> Recomputed:
    """Makes what was found the corpus's next revision, if that changes anything. Raises `Refused`."""
    settling = _Settling(reviser, assignment, size_min, trigger, call.at)
    return reviser.revise(call, target, RECOMPUTED, settling.plan)


class _Settling:
    def __init__(
        self, reviser: Reviser, assignment: Assignment, size_min: int, trigger: Trigger, now: datetime
    ) -> None:
        self._reviser = reviser
        self._assignment = assignment
        self._size_min = size_min
        self._trigger = trigger
        self._now = now

    def plan(self, corpus: Corpus, base: Revision) -> Plan[Recomputed] | NothingToChange[Recomputed]:
        """On the corpus as it is at `base`, which may have these communities already, or newer ones."""
        snapshot = self._reviser.batched(corpus, base)
        keys = snapshot.keys
        last = self._reviser.engine.run(lambda tr: communities.last_run(tr, keys))
        if last is not None and last.of_revision > self._assignment.of_revision:
            return self._unchanged(corpus, keys, last)
        make = CommunityWrites(keys, corpus.number, self._reviser.keyring)
        planned = plan_communities(corpus.id, self._assignment, self._size_min, snapshot, make, self._now)
        run = self._run(planned, base)
        if not planned.writes:
            return self._unchanged(corpus, keys, run)
        return Plan(
            base=base,
            number=self._reviser.make_keys(corpus, []),
            writes=planned.writes,
            sections=(),
            documents_added=(),
            documents_removed=(),
            sources=(),
            result=lambda revision: Recomputed(replace(run, revision=revision), changed=True),
            communities=True,
            finish=lambda tr, trail, revision: _note_run(tr, trail, keys, replace(run, revision=revision)),
        )

    def _unchanged(self, corpus: Corpus, keys: CorpusKeys, run: CommunityRun) -> NothingToChange[Recomputed]:
        return NothingToChange(
            Recomputed(run, changed=False),
            self._reviser.make_keys(corpus, []),
            lambda tr, trail, _revision: _note_run(tr, trail, keys, run),
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

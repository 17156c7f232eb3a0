"""RecomputeCommunities: finds the communities of a corpus again, and makes them its next revision.

    facts at revision R -> a process finds communities -> the difference to what is stored, on the present head

Reads and writes go on meanwhile. The plan takes into account what they changed. Each corpus has at most one run at a
time, in a thread of its own, which goes on if the caller's time runs out.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import structlog

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.communities import store as communities
from drillcore_server.communities.community_finder import Assignment, CommunityFinder
from drillcore_server.communities.community_plan import CommunityPlan, plan_communities
from drillcore_server.communities.find.process import Processes
from drillcore_server.communities.model import CommunityRun, Trigger
from drillcore_server.communities.settings import CommunitySettings
from drillcore_server.communities.store import CommunityWrites
from drillcore_server.kernel.access import SERVER
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Refused, Unavailable
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusId, RequestId, Revision, new_uuid
from drillcore_server.storage.records import RecordKind


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The outcome of the call."""

    run: CommunityRun | None
    """This run; while it is still under way, the run before it. None if there is no run yet."""
    changed: bool
    """Whether the run made a revision."""
    running: bool = False
    """Whether the run goes on because the caller's time ran out."""


RECOMPUTED = RecordKind(Recomputed)


RUNS_MAX: Final = 2
"""Runs of a server at once. Each may hold all vectors of a corpus."""
_WAITING_SHARE: Final = 0.75
"""The share of a call's time for waiting. The rest is for writing what was found."""
_TIMEOUT_S: Final = 120.0


class PendingRun:
    """A run that is under way.

    A caller who waits until it ends publishes its result. Once a caller has left, the server publishes it as well.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_left = False
        self._outcome: Assignment | Exception | None = None

    def wait(self, timeout_s: float) -> bool:
        """Waits for the run to end. Returns whether it has ended."""
        return self._ended.wait(timeout_s)

    def leave(self) -> bool:
        """Leaves the result to the server. Returns False if the run has ended already."""
        with self._lock:
            self._is_left = not self._ended.is_set()
            return self._is_left

    def end(self, outcome: Assignment | Exception) -> bool:
        """Ends the run. Returns whether its result was left to the server."""
        with self._lock:
            self._outcome = outcome
            self._ended.set()
            return self._is_left

    def result(self) -> Assignment:
        """What the run found. Raises what it failed with. Call it only once the run has ended."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class CommunityRuns:
    """The runs of one server."""

    def __init__(
        self,
        reviser: Reviser,
        processes: Processes,
        settings: CommunitySettings,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self.reviser = reviser
        self.settings = settings
        self.log = log
        self._finder = CommunityFinder(reviser, processes, settings.parameters, log)
        self._threads = ThreadPoolExecutor(RUNS_MAX, thread_name_prefix="drillcore-communities")
        self._lock = threading.Lock()
        self._under_way: dict[CorpusId, PendingRun] = {}
        self._closed = False

    def recompute(self, call: Call, target: Target) -> Recomputed:
        """Finds the communities of the facts that the corpus has at the time of the call.

        If the caller's time runs out, the run goes on and the outcome says so. A retry of the same call returns the
        first outcome. Raises `Refused`.
        """
        until_s = time.monotonic() + _WAITING_SHARE * call.timeout_s
        begun = self.reviser.begin(call, target, RECOMPUTED)
        if begun.known is not None:
            return begun.known
        while True:
            run = self.begin(begun.corpus)
            if not run.wait(until_s - time.monotonic()) and run.leave():
                return self._left(call, target, begun.corpus)
            found = run.result()
            if found.of_revision >= begun.head:  # else the run began before the call, with older facts
                return publish_communities(self.reviser, call, target, found, self.settings.size_min, Trigger.REQUEST)

    def begin(self, corpus: Corpus) -> PendingRun:
        """The run of a corpus that is under way, or a new one."""
        with self._lock:
            if self._closed:
                raise Unavailable(Reason.SHUTTING_DOWN, "the server is stopping")
            run = self._under_way.get(corpus.id)
            if run is None:
                run = self._under_way[corpus.id] = PendingRun()
                self._threads.submit(self._work, corpus, run)
        return run

    def recompute_for_server(self, corpus: Corpus, trigger: Trigger) -> Recomputed:
        """Finds communities for the server itself, and waits as long as it takes. Raises `Refused`."""
        run = self.begin(corpus)
        run.wait(threading.TIMEOUT_MAX)
        return self._publish(corpus, run.result(), trigger)

    def stop(self) -> None:
        """Ends all runs. Their callers get `Unavailable` (SHUTTING_DOWN)."""
        with self._lock:
            self._closed = True
            waiting = list(self._under_way.values())
        self._finder.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for run in waiting:
            run.end(Unavailable(Reason.SHUTTING_DOWN, "the server is stopping; nothing was written"))

    def close(self) -> None:
        """Ends all runs, and waits for their threads."""
        self.stop()
        self._threads.shutdown()

    def _work(self, corpus: Corpus, run: PendingRun) -> None:
        outcome: Assignment | Exception
        try:
            outcome = self._finder.find(corpus)
        except Exception as error:  # raised again in the thread that waits for it
            outcome = error
        with self._lock:
            del self._under_way[corpus.id]
        if run.end(outcome):
            self._publish_left(corpus, outcome)

    def _publish_left(self, corpus: Corpus, outcome: Assignment | Exception) -> None:
        """Publishes a result that no caller waits for."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            self._publish(corpus, outcome, Trigger.REQUEST)
        except Refused as refused:
            self.log.warning("communities not found", corpus_id=str(corpus.id), reason=refused.reason.name)
        except Exception as error:  # nobody else would report it
            self.log.error("communities not found", corpus_id=str(corpus.id), error=type(error).__name__)

    def _publish(self, corpus: Corpus, found: Assignment, trigger: Trigger) -> Recomputed:
        request = RequestId(f"communities of {corpus.id}, {new_uuid()}")
        call = Call("RecomputeCommunities", request, SERVER, datetime.now(UTC), _TIMEOUT_S, b"")
        target = Target(corpus.tenant_id, corpus.id, by_server=True)
        done = publish_communities(self.reviser, call, target, found, self.settings.size_min, trigger)
        assert done.run is not None
        counts = {"facts": done.run.facts, "communities": done.run.communities, "revision": done.run.revision}
        self.log.info("communities found", corpus_id=str(corpus.id), trigger=trigger.value, **counts)
        return done

    def _left(self, call: Call, target: Target, corpus: Corpus) -> Recomputed:
        keys = self.reviser.keys.of_corpus(corpus.number)
        last = self.reviser.engine.run(lambda tr: communities.last_run(tr.snapshot, keys))
        number = self.reviser.make_keys(corpus, [])
        left = NothingToChange(Recomputed(last, changed=False, running=True), number)
        return self.reviser.leave(call, target, RECOMPUTED, left)


def publish_communities(
    reviser: Reviser, call: Call, target: Target, assignment: Assignment, size_min: int, trigger: Trigger
) -> Recomputed:
    """Makes what was found the corpus's next revision, unless nothing changes. Raises `Refused`."""
    planner = _ResultPlanner(reviser, assignment, size_min, trigger, call.at)
    return reviser.revise(call, target, RECOMPUTED, planner.plan)


class _ResultPlanner:
    def __init__(
        self, reviser: Reviser, assignment: Assignment, size_min: int, trigger: Trigger, now: datetime
    ) -> None:
        self._reviser = reviser
        self._assignment = assignment
        self._size_min = size_min
        self._trigger = trigger
        self._now = now

    def plan(self, snapshot: BatchedReads) -> Plan[Recomputed] | NothingToChange[Recomputed]:
        """Plans on the corpus as it is now, which may already have these communities or newer ones."""
        corpus, base, keys = snapshot.corpus, snapshot.revision, snapshot.keys
        last = snapshot.read(lambda view: communities.last_run(view.tr, keys))
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
    """Stores the run as the last one, unless a run of newer facts has overtaken it."""
    last = communities.last_run(tr, keys)
    if last is None or last.of_revision <= run.of_revision:
        communities.put_run(tr, keys, run)
    trail.detail |= {
        "trigger": run.trigger.value,
        "of_revision": run.of_revision,
        "facts": run.facts,
        "communities": run.communities,
    }

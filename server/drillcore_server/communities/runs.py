"""Runs that find communities: at most one at a time for each corpus, in threads that nobody's call depends on.

The thread that keeps communities up to date: after enough new facts, and from time to time.

What it goes by is in the store, the last run of each corpus and the feed of changes, so a restart loses nothing.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.communities import store as communities
from drillcore_server.communities.find.process import Processes
from drillcore_server.communities.model import CommunityRun, Trigger
from drillcore_server.communities.recompute import RECOMPUTED, Recomputed, settle_communities
from drillcore_server.communities.run import Assignment, Finder
from drillcore_server.communities.settings import CommunitySettings
from drillcore_server.facts.model import FactChange
from drillcore_server.kernel import revisions
from drillcore_server.kernel.access import SERVER
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.errors import Missing, Refused, Unavailable
from drillcore_server.kernel.revise import NothingToChange, Reviser, Target
from drillcore_server.kernel.rounds import Round
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusId, CorpusNumber, RequestId, Revision, new_uuid
from drillcore_server.tenancy.trim import each_corpus
from drillcore_server.vectors import store as embeddings

AT_ONCE: Final = 2
"""Runs of a server; each may hold all vectors of a corpus."""
_WAITING_SHARE: Final = 0.75
"""Of the time that a call has: the rest is for writing what was found."""
_TIMEOUT_S: Final = 120.0


class Run:
    """One that is under way. Whoever has waited for it settles it; what all have left, the server settles."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_left = False
        self._outcome: Assignment | Exception | None = None

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        return self._ended.wait(timeout_s)

    def leave(self) -> bool:
        """Leaves it to the server; False if it has ended."""
        with self._lock:
            self._is_left = not self._ended.is_set()
            return self._is_left

    def end(self, outcome: Assignment | Exception) -> bool:
        """Whether it was left to the server."""
        with self._lock:
            self._outcome = outcome
            self._ended.set()
            return self._is_left

    def result(self) -> Assignment:
        """What it found, once it has ended. Raises what it failed with."""
        if isinstance(self._outcome, Exception):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class CommunityRuns:
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
        self._finder = Finder(reviser, processes, settings.parameters, log)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="drillcore-communities")
        self._lock = threading.Lock()
        self._under_way: dict[CorpusId, Run] = {}
        self._closed = False

    def recompute(self, call: Call, target: Target) -> Recomputed:
        """Finds the communities of the facts that the corpus has when it is asked; see `Recomputed`.

        A caller whose time runs out is told that it goes on. Raises `Refused`.
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
            if found.of_revision >= begun.head:  # else it had begun before the call, with fewer facts
                return settle_communities(self.reviser, call, target, found, self.settings.size_min, Trigger.REQUEST)

    def begin(self, corpus: Corpus) -> Run:
        """The run of a corpus: the one under way, or a new one."""
        with self._lock:
            if self._closed:
                raise Unavailable(Reason.SHUTTING_DOWN, "the server is stopping")
            run = self._under_way.get(corpus.id)
            if run is None:
                run = self._under_way[corpus.id] = Run()
                self._threads.submit(self._work, corpus, run)
        return run

    def recompute_for_server(self, corpus: Corpus, trigger: Trigger) -> Recomputed:
        """The same, by the server itself, however long it takes. Raises `Refused`."""
        run = self.begin(corpus)
        run.wait(threading.TIMEOUT_MAX)
        return self._settle(corpus, run.result(), trigger)

    def stop(self) -> None:
        """Ends what is under way: who waits for it is told so."""
        with self._lock:
            self._closed = True
            waiting = list(self._under_way.values())
        self._finder.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for run in waiting:
            run.end(Unavailable(Reason.SHUTTING_DOWN, "the server is stopping; nothing was written"))

    def close(self) -> None:
        """Returns when nothing is under way any more."""
        self.stop()
        self._threads.shutdown()

    def _work(self, corpus: Corpus, run: Run) -> None:
        outcome: Assignment | Exception
        try:
            outcome = self._finder.find(corpus)
        except Exception as error:  # goes on in the thread that waits for it
            outcome = error
        with self._lock:
            del self._under_way[corpus.id]
        if run.end(outcome):
            self._settle_left(corpus, outcome)

    def _settle_left(self, corpus: Corpus, outcome: Assignment | Exception) -> None:
        """Nobody waits for it any more."""
        try:
            if isinstance(outcome, Exception):
                raise outcome
            self._settle(corpus, outcome, Trigger.REQUEST)
        except Refused as refused:
            self.log.warning("communities not found", corpus_id=str(corpus.id), reason=refused.reason.name)
        except Exception as error:  # nobody else would tell
            self.log.error("communities not found", corpus_id=str(corpus.id), error=type(error).__name__)

    def _settle(self, corpus: Corpus, found: Assignment, trigger: Trigger) -> Recomputed:
        request = RequestId(f"communities of {corpus.id}, {new_uuid()}")
        call = Call("RecomputeCommunities", request, SERVER, datetime.now(UTC), _TIMEOUT_S, b"")
        target = Target(corpus.tenant_id, corpus.id, by_server=True)
        done = settle_communities(self.reviser, call, target, found, self.settings.size_min, trigger)
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


_PAGE: Final = 20_000
"""Entries of the feed read in one transaction."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """What the feed says of the revisions after one."""

    after: Revision
    begin: bytes
    """Where to go on."""
    changes: int = 0
    added: int = 0


class CommunityKeeper:
    def __init__(self, runs: CommunityRuns, stopping: threading.Event) -> None:
        """Only corpora where the server may be at work are kept: another server keeps those of other regions."""
        self.runs = runs
        self._engine = runs.reviser.engine
        self._unit = runs.reviser.unit
        self._settings = runs.settings
        self._log = runs.log
        self._counted: dict[CorpusNumber, _Counted] = {}
        self._stopping = stopping
        self.every_s = runs.settings.check_every_s

    def stop(self) -> None:
        """Ends what is under way."""
        self.runs.close()

    def run_due(self, now: datetime) -> int:
        """Finds the communities of every corpus that is due at a time, one after the other; how many it were.

        One that fails does not keep the others from their turn, and is due again. Raises an `ExceptionGroup` of what
        failed, or `EngineError` if the corpora cannot be listed.
        """
        count = 0
        with Round(self._log, "communities not found, will try again") as finds:
            for corpus in each_corpus(self._engine, self._unit.keys, self._unit.residency):
                if self._stopping.is_set():
                    break
                with finds.part(corpus_id=str(corpus.id)):
                    count += self._run(corpus, now)
        return count

    def _run(self, corpus: Corpus, now: datetime) -> bool:
        trigger = self._trigger(corpus, now)
        if trigger is None:
            return False
        try:
            self.runs.recompute_for_server(corpus, trigger)
        except Missing:  # the corpus was deleted meanwhile
            return False
        return True

    def _trigger(self, corpus: Corpus, now: datetime) -> Trigger | None:
        """Why a corpus is due; None if it is not."""
        keys = self._unit.keys.of_corpus(corpus.number)
        last = self._engine.run(lambda tr: communities.last_run(tr.snapshot, keys))
        since = now - (corpus.created_at if last is None else last.at)
        counted = self._count(corpus, keys, Revision(0) if last is None else last.of_revision)
        has_paused = last is None or since >= timedelta(seconds=self._settings.pause_s)
        if counted.added >= self._settings.new_facts_min and has_paused:
            return Trigger.FACTS
        if since >= timedelta(days=self._settings.every_days) and (
            counted.changes or self._has_other_vectors(keys, last)
        ):
            return Trigger.SCHEDULE
        return None

    def _has_other_vectors(self, keys: CorpusKeys, last: CommunityRun | None) -> bool:
        """Whether searches use another model than at the last run: the feed of changes does not tell of that."""
        if last is None:
            return False
        now, then = self._engine.run(
            lambda tr: [
                embeddings.get(tr.snapshot, keys, at) for at in (revisions.head(tr.snapshot, keys), last.of_revision)
            ]
        )
        return now is not None and (then is None or now.current != then.current)

    def _count(self, corpus: Corpus, keys: CorpusKeys, after: Revision) -> _Counted:
        """Goes on where it was the last time: most revisions were counted then."""
        counted = self._counted.get(corpus.number)
        if counted is None or counted.after != after:
            counted = _Counted(after, keys.fact_changes_between(after, after).begin)
        while (further := self._engine.run(lambda tr, done=counted: _further(tr.snapshot, keys, done))) != counted:  # type: ignore[misc]
            counted = further
        self._counted[corpus.number] = counted
        return counted


def _further(tr: Reader, keys: CorpusKeys, counted: _Counted) -> _Counted:
    """With the next entries, up to the head's; the same if there are none."""
    _, end = keys.fact_changes_between(counted.after, revisions.head(tr, keys))
    told = list(tr.range(counted.begin, end, limit=_PAGE)) if counted.begin < end else []
    if not told:
        return counted
    added = sum(bool(FactChange(value[0]) & FactChange.ADDED) for _, value in told)
    return _Counted(counted.after, told[-1][0] + b"\0", counted.changes + len(told), counted.added + added)

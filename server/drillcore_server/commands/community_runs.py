"""Runs that find communities: at most one at a time for each corpus, in threads that nobody's call depends on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

import structlog

from drillcore_proto.reasons import Reason
from drillcore_server.auth.principal import SERVER
from drillcore_server.commands.community_facts import Assignment
from drillcore_server.commands.community_finding import Finder
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.recompute_communities import RECOMPUTED, Recomputed, settle_communities
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.communities.process import Processes
from drillcore_server.communities.settings import CommunitySettings
from drillcore_server.domain.communities import Trigger
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import Refused, Unavailable
from drillcore_server.domain.ids import CorpusId, RequestId, new_uuid
from drillcore_server.store import communities

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
        ingester: Ingester,
        processes: Processes,
        settings: CommunitySettings,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self.ingester = ingester
        self.settings = settings
        self.log = log
        self._finder = Finder(ingester, processes, settings.parameters, log)
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="drillcore-communities")
        self._lock = threading.Lock()
        self._under_way: dict[CorpusId, Run] = {}
        self._closed = False

    def recompute(self, call: Call, target: Target) -> Recomputed:
        """Finds the communities of the facts that the corpus has when it is asked; see `Recomputed`.

        A caller whose time runs out is told that it goes on. Raises `Refused`.
        """
        until_s = time.monotonic() + _WAITING_SHARE * call.timeout_s
        begun = self.ingester.reviser.begin(call, target, RECOMPUTED)
        if begun.known is not None:
            return begun.known
        while True:
            run = self.begin(begun.corpus)
            if not run.wait(until_s - time.monotonic()) and run.leave():
                return self._left(call, target, begun.corpus)
            found = run.result()
            if found.of_revision >= begun.head:  # else it had begun before the call, with fewer facts
                return settle_communities(self.ingester, call, target, found, self.settings.size_min, Trigger.REQUEST)

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
        done = settle_communities(self.ingester, call, target, found, self.settings.size_min, trigger)
        assert done.run is not None
        counts = {"facts": done.run.facts, "communities": done.run.communities, "revision": done.run.revision}
        self.log.info("communities found", corpus_id=str(corpus.id), trigger=trigger.value, **counts)
        return done

    def _left(self, call: Call, target: Target, corpus: Corpus) -> Recomputed:
        keys = self.ingester.unit.keys.of_corpus(corpus.number)
        last = self.ingester.engine.run(lambda tr: communities.last_run(tr.snapshot, keys))
        number = self.ingester.make_keys(corpus, [])
        return self.ingester.reviser.leave(
            call, target, RECOMPUTED, number, Recomputed(last, changed=False, running=True)
        )

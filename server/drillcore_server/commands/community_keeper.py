"""The thread that keeps communities up to date: after enough new facts, and from time to time.

What it goes by is in the store, the last run of each corpus and the feed of changes, so a restart loses nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_fdb.errors import EngineError
from drillcore_server.commands.community_runs import CommunityRuns
from drillcore_server.commands.trim_corpora import each_corpus
from drillcore_server.domain.communities import CommunityRun, Trigger
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import Refused
from drillcore_server.domain.facts import FactChange
from drillcore_server.domain.ids import CorpusNumber, Revision
from drillcore_server.store import communities, embeddings, revisions
from drillcore_server.store.corpus_keys import CorpusKeys

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
    """`start`, then `stop`."""

    def __init__(self, runs: CommunityRuns) -> None:
        """Only corpora where the server may be at work are kept: another server keeps those of other regions."""
        self.runs = runs
        self._engine = runs.ingester.engine
        self._unit = runs.ingester.unit
        self._settings = runs.settings
        self._log = runs.log
        self._counted: dict[CorpusNumber, _Counted] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="drillcore-communities-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends what is under way."""
        self._stopping.set()
        self.runs.stop()
        if self._thread.is_alive():
            self._thread.join()
        self.runs.close()

    def run_due(self, now: datetime) -> int:
        """Finds the communities of every corpus that is due at a time, one after the other; how many it were.

        One that fails does not keep the others from it, and is due again. Raises `EngineError` if none can be listed.
        """
        return sum(self._run(corpus, trigger) for corpus, trigger in self._due(now))

    def _work(self) -> None:
        while not self._stopping.wait(self._settings.check_every_s):
            try:
                self.run_due(datetime.now(UTC))
            except EngineError as error:
                self._log.warning("communities not kept, will try again", error=error.message, code=error.code)

    def _run(self, corpus: Corpus, trigger: Trigger) -> bool:
        try:
            self.runs.recompute_for_server(corpus, trigger)
        except Refused as refused:  # deleted meanwhile, or the process failed
            self._log.warning("communities not found", corpus_id=str(corpus.id), reason=refused.reason.name)
            return False
        except EngineError as error:
            self._log.warning("communities not found", corpus_id=str(corpus.id), error=error.message, code=error.code)
            return False
        return True

    def _due(self, now: datetime) -> Iterator[tuple[Corpus, Trigger]]:
        for corpus in each_corpus(self._engine, self._unit.keys, self._unit.residency):
            if self._stopping.is_set():
                return
            trigger = self._trigger(corpus, now)
            if trigger is not None:
                yield corpus, trigger

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

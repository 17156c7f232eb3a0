"""Keeps communities up to date: starts a run after enough new facts, and from time to time.

It decides by the last run of each corpus and the feed of changes. Both are stored, so a restart loses nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_server.communities import store as communities
from drillcore_server.communities.model import CommunityRun, Trigger
from drillcore_server.communities.recompute import CommunityRuns
from drillcore_server.facts.model import FactChange
from drillcore_server.facts.store import feed_changes
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.telemetry import Round
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, Revision
from drillcore_server.tenancy.trim import each_corpus
from drillcore_server.vectors.corpus_models import embeddings_at

_PAGE: Final = 20_000
"""Entries of the feed that one transaction reads."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """How many changes the feed has behind a revision, counted so far."""

    after: Revision
    begin: bytes
    """The key where counting continues."""
    changes: int = 0
    added: int = 0


class CommunityKeeper:
    def __init__(self, runs: CommunityRuns, stopping: threading.Event) -> None:
        """Looks only at corpora in the server's own regions. Other servers look at the others."""
        self.runs = runs
        self._engine = runs.reviser.engine
        self._unit = runs.reviser.unit
        self._settings = runs.settings
        self._log = runs.log
        self._counted: dict[CorpusNumber, _Counted] = {}
        self._stopping = stopping
        self.every_s = runs.settings.check_every_s

    def stop(self) -> None:
        """Stops the runs under way, and waits for them to end."""
        self.runs.close()

    def run_due(self, now: datetime) -> int:
        """Finds the communities of every corpus that is due, one after the other. Returns how many corpora.

        A corpus that fails does not stop the others, and stays due. Raises an `ExceptionGroup` of the failures, or
        `EngineError` if the corpora cannot be listed.
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
        """Whether searches use another model than at the last run. The feed of changes does not say so."""
        if last is None:
            return False
        now, then = self._engine.run(
            lambda tr: [
                embeddings_at(tr.snapshot, keys, at) for at in (revisions.head(tr.snapshot, keys), last.of_revision)
            ]
        )
        return now is not None and (then is None or now.current != then.current)

    def _count(self, corpus: Corpus, keys: CorpusKeys, after: Revision) -> _Counted:
        """Continues where the last count ended, since most revisions were counted then."""
        counted = self._counted.get(corpus.number)
        if counted is None or counted.after != after:
            counted = _Counted(after, keys.fact_changes_between(after, after).begin)
        while (further := self._engine.run(lambda tr, done=counted: _count_page(tr.snapshot, keys, done))) != counted:  # type: ignore[misc]
            counted = further
        self._counted[corpus.number] = counted
        return counted


def _count_page(tr: Reader, keys: CorpusKeys, counted: _Counted) -> _Counted:
    """Counts the next entries, up to the head. Returns the same count if there are none."""
    _, end = keys.fact_changes_between(counted.after, revisions.head(tr, keys))
    entries = list(tr.range(counted.begin, end, limit=_PAGE)) if counted.begin < end else []
    if not entries:
        return counted
    changes = [changed for key, value in entries for changed in feed_changes(key, value)]
    added = sum(FactChange.ADDED in changed.change for changed in changes)
    return _Counted(counted.after, entries[-1][0] + b"\0", counted.changes + len(changes), counted.added + added)

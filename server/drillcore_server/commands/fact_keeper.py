"""What the server does to facts by itself: each change is a revision of the corpus, with its audit record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Final

from drillcore_fdb.engine import Engine, Reader, Transaction
from drillcore_server.auth.principal import SERVER
from drillcore_server.commands.fact_changing import ChangedFact, FactDesk
from drillcore_server.commands.revise import Overtaken, Plan, Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.facts import Fact, FactChange
from drillcore_server.domain.ids import FactId, RequestId, Revision, new_uuid
from drillcore_server.store import revisions
from drillcore_server.store.facts import FactsView
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind
from drillcore_server.store.snapshot import Snapshot

BATCH_MAX: Final = 1_000
"""Facts changed by one revision: small enough for one transaction, and for its audit record to name them all."""
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Kept:
    revision: Revision
    facts: int


@dataclass(frozen=True, slots=True)
class Upkeeping:
    """What is to be done to facts, and how its audit record says so."""

    word: str
    change: Callable[[Fact], Fact | None]
    """The fact as it should be; None to leave it."""
    what: FactChange
    among: Callable[[Reader, Sequence[FactId]], Sequence[FactId]] = lambda _tr, facts: facts
    """Those of the facts that it is to be done to, by what is not in their records. Looked at once more at the end."""


KEPT = RecordKind(Kept)


class _NothingToDo(Exception):  # noqa: N818 - a turn of events, not an error
    """Somebody else has done it, or it need not be done any more."""


@dataclass(frozen=True, slots=True)
class FactKeeper:
    desk: FactDesk

    @property
    def engine(self) -> Engine:
        return self.desk.ingester.engine

    @property
    def keys(self) -> Keyspace:
        return self.desk.library.unit.keys

    def head(self, corpus: Corpus) -> Snapshot:
        """The corpus as it is now."""
        keys = self.keys.of_corpus(corpus.number)
        head = self.engine.run(lambda tr: revisions.head(tr.snapshot, keys))
        return self.desk.ingester.snapshot(corpus, head)

    def apply(
        self, corpus: Corpus, facts: Iterable[FactId], upkeep: Upkeeping, now: datetime, stopping: Callable[[], bool]
    ) -> int:
        """Changes those of the facts that need it, in revisions of bounded size; how many it were.

        Raises `Refused` if the corpus is gone, or others keep changing it.
        """
        left, count = iter(facts), 0
        while not stopping() and (batch := list(islice(left, BATCH_MAX))):
            count += self._apply(corpus, batch, upkeep, now)
        return count

    def _apply(self, corpus: Corpus, facts: Sequence[FactId], upkeep: Upkeeping, now: datetime) -> int:
        """As one revision, or none if there is nothing to change."""
        request = RequestId(f"{upkeep.word} in {corpus.id}, {new_uuid()}")
        call = Call("Housekeeping", request, SERVER, now, _TIMEOUT_S, b"")
        target = Target(corpus.tenant_id, corpus.id, by_server=True)
        wanted = sorted(set(facts))
        try:
            return self.desk.ingester.reviser.revise(
                call, target, KEPT, lambda found, base: self._plan(found, base, wanted, upkeep)
            ).facts
        except _NothingToDo:
            return 0

    def _plan(self, corpus: Corpus, base: Revision, facts: Sequence[FactId], upkeep: Upkeeping) -> Plan[Kept]:
        snapshot = self.desk.ingester.snapshot(corpus, base)
        wanted = snapshot.read(lambda view: upkeep.among(view.tr, facts))
        there = [fact for fact in snapshot.find(wanted, lambda view, one: FactsView(view).fact(one)) if fact]
        pairs = ((before, upkeep.change(before)) for before in there)
        changes = [ChangedFact(before, after, upkeep.what) for before, after in pairs if after is not None]
        if not changes:
            raise _NothingToDo
        ids = [one.after.id for one in changes]

        def finish(tr: Transaction, trail: Trail, _revision: Revision) -> None:
            if len(upkeep.among(tr, ids)) < len(ids):
                raise Overtaken
            trail.detail["upkeep"] = upkeep.word

        return replace(self.desk.plan(corpus, base, changes, lambda revision: Kept(revision, len(ids))), finish=finish)

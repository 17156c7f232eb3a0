"""Finds the communities of a corpus: reads its facts and vectors, and lets a process of its own group them.

It changes nothing in the corpus. A lease keeps other servers from doing the same work.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

import numpy as np
import numpy.typing as npt
import structlog

from drillcore_fdb.engine import Options
from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.communities import store as communities
from drillcore_server.communities.find.neighbour_graph import NONE
from drillcore_server.communities.find.process import FailedError, Figures, Found, Processes, Task
from drillcore_server.communities.memberships import ID, Ids
from drillcore_server.communities.model import RunLease
from drillcore_server.communities.settings import Parameters
from drillcore_server.communities.store import ID_BYTES
from drillcore_server.facts.store import FactReader, stored_facts, stored_vectors
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel import retention, revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.kernel.revise import Reviser
from drillcore_server.kernel.unit import errors_as_refusals
from drillcore_server.storage.ids import FactId, Revision
from drillcore_server.storage.keyring import KeyErased


@dataclass(frozen=True, slots=True)
class SearchedFacts:
    """The facts that communities are found among: those in the search index at one revision, in the order of ids."""

    snapshot: BatchedReads
    ids: Ids
    importances: npt.NDArray[np.float64]
    model: int
    """The number of the model whose vectors are in use."""
    dimensions: int

    @classmethod
    def of(cls, snapshot: BatchedReads, beat: Callable[[], None]) -> SearchedFacts:
        """Reads all facts of a snapshot, in as many transactions as it takes. Keeps calling `beat` meanwhile."""
        ids, importances = bytearray(), array("d")
        for fact in stored_facts(snapshot):
            beat()
            if fact.is_searched:
                ids += fact.id.bytes
                importances.append(fact.importance)
        embeddings = snapshot.read(lambda view: FactReader(view).embeddings())
        model, dimensions = (embeddings.current.number, embeddings.current.dimensions) if embeddings else (0, 0)
        return cls(snapshot, np.frombuffer(bytes(ids), ID), np.array(importances), model, dimensions)

    def vectors(self, beat: Callable[[], None]) -> Iterator[bytes]:
        """The stored vector of each fact, in order. Raises `StoreCorruptError` if one is missing."""
        stored = stored_vectors(self.snapshot, self.model)
        for wanted in self.ids:
            beat()
            fact = FactId(UUID(bytes=bytes(wanted).ljust(ID_BYTES, b"\0")))
            found = next((pair for pair in stored if pair[0] >= fact), None)
            if found is None or found[0] != fact:
                raise StoreCorruptError(f"fact {fact} has no vector at revision {self.snapshot.revision}")
            yield found[1]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What was found: a community, or none, for each fact of a revision."""

    facts: SearchedFacts
    found: Found
    began_s: float
    """When the work began, by the monotonic clock."""

    @property
    def of_revision(self) -> Revision:
        return self.facts.snapshot.revision


LEASE_S: Final = 60.0
ATTEMPTS: Final = 3
_RENEW_EVERY_S: Final = 10.0
_LEASE_POLL_S: Final = 0.5


class CommunityFinder:
    def __init__(
        self, reviser: Reviser, processes: Processes, parameters: Parameters, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._reviser = reviser
        self._engine = reviser.engine
        self._processes = processes
        self._parameters = parameters
        self._log = log
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ends the work under way, and lets no other begin."""
        self._stopping.set()
        self._processes.close()

    def find(self, corpus: Corpus) -> Assignment:
        """Finds the communities of the facts that a corpus has now. Waits while another server does so.

        Raises `Refused`: CORPUS_NOT_FOUND, SHUTTING_DOWN, or COMMUNITIES_UNAVAILABLE if the process failed `ATTEMPTS`
        times. May be called again.
        """
        lease = _Lease(self._reviser, corpus)
        with errors_as_refusals():
            while not lease.renewed():
                self._check_running()
                self._stopping.wait(_LEASE_POLL_S)
            try:
                return self._tried(corpus, lambda: self._beat(lease))
            finally:
                lease.give_back()

    def _tried(self, corpus: Corpus, beat: Callable[[], None]) -> Assignment:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._found(corpus, beat)
            except KeyErased:
                why = "a source was erased meanwhile"
            except FailedError as error:
                why = str(error)
            self._check_running()
            self._log.warning("communities not found", corpus_id=str(corpus.id), attempt=attempt, why=why)
        raise Unavailable(
            Reason.COMMUNITIES_UNAVAILABLE, "the process that finds communities failed; nothing was written"
        )

    def _found(self, corpus: Corpus, beat: Callable[[], None]) -> Assignment:
        began, keys = time.monotonic(), self._reviser.keys
        corpus = self._engine.run(lambda tr: corpora.get(tr, keys, corpus.tenant_id, corpus.id))
        own = keys.of_corpus(corpus.number)
        snapshot = self._reviser.batched(corpus, self._engine.run(lambda tr: revisions.head(tr, own)))
        facts = SearchedFacts.of(snapshot, beat)
        found = self._assigned(facts, beat)
        if snapshot.revision:  # a trim may have removed facts before they were read
            self._engine.run(lambda tr: retention.check_kept(tr, own, snapshot.revision))
        self._log.info("communities computed", corpus_id=str(corpus.id), facts=len(facts.ids), **asdict(found.figures))
        return Assignment(facts, found, began)

    def _assigned(self, facts: SearchedFacts, beat: Callable[[], None]) -> Found:
        count = len(facts.ids)
        if count < self._parameters.size_min:
            return Found(np.full(count, NONE, np.int32), Figures())
        task = Task(count, facts.dimensions, self._parameters)
        return self._processes.find(task, facts.vectors(beat), beat)

    def _beat(self, lease: _Lease) -> None:
        self._check_running()
        lease.beat()

    def _check_running(self) -> None:
        if self._stopping.is_set():
            raise Unavailable(Reason.SHUTTING_DOWN, "the server is stopping")


class _Lease:
    """A lease on finding the communities of a corpus. It lasts until `give_back`, if `beat` is called often enough."""

    def __init__(self, reviser: Reviser, corpus: Corpus) -> None:
        self._engine = reviser.engine
        self._keys = reviser.keys.of_corpus(corpus.number)
        self._id = uuid4()
        self._renewed_s = 0.0

    def renewed(self) -> bool:
        """Takes or renews the lease. Returns whether this server has it."""
        now = datetime.now(UTC)
        lease = RunLease(self._id, now + timedelta(seconds=LEASE_S))
        self._renewed_s = time.monotonic()
        return self._engine.run(lambda tr: communities.take_lease(tr, self._keys, lease, now), Options(idempotent=True))

    def beat(self) -> None:
        if time.monotonic() - self._renewed_s > _RENEW_EVERY_S:
            # If another server has taken the lease, both do the same work. The result of the later revision counts.
            self.renewed()

    def give_back(self) -> None:
        self._engine.run(lambda tr: communities.give_back_lease(tr, self._keys, self._id), Options(idempotent=True))

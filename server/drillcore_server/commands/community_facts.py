"""The facts that communities are found among: those of one revision that are in the search index."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.communities.process import Found
from drillcore_server.derived.communities import ID, Ids
from drillcore_server.domain.ids import Revision
from drillcore_server.store.communities import ID_BYTES
from drillcore_server.store.facts import FACT, FactsView, fact_id
from drillcore_server.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SearchedFacts:
    """In the order of their ids."""

    snapshot: Snapshot
    ids: Ids
    importances: npt.NDArray[np.float64]
    model: int
    """Whose vectors are in use."""
    dimensions: int

    @classmethod
    def of(cls, snapshot: Snapshot, beat: Callable[[], None]) -> SearchedFacts:
        """Reads them all, in as many transactions as it takes. `beat` is called again and again meanwhile."""
        ids, importances = bytearray(), array("d")
        for entry in snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.facts())):
            beat()
            fact = FACT.decode(entry.value)
            if fact.is_searched:
                ids += fact.id.bytes
                importances.append(fact.importance)
        embeddings = snapshot.read(lambda view: FactsView(view).embeddings())
        model, dimensions = (embeddings.current.number, embeddings.current.dimensions) if embeddings else (0, 0)
        return cls(snapshot, np.frombuffer(bytes(ids), ID), np.array(importances), model, dimensions)

    def vectors(self, beat: Callable[[], None]) -> Iterator[bytes]:
        """As they are stored, one for each fact. Raises `StoreCorruptError` if one is missing."""
        stored = self.snapshot.entries(self.snapshot.keys.fact_vectors(self.model))
        for wanted in self.ids:
            beat()
            key = bytes(wanted).ljust(ID_BYTES, b"\0")
            entry = next((one for one in stored if one.key[-ID_BYTES:] >= key), None)
            if entry is None or entry.key[-ID_BYTES:] != key:
                raise StoreCorruptError(f"fact {fact_id(key)} has no vector at revision {self.snapshot.revision}")
            yield self.snapshot.sealed.opened(entry).value


@dataclass(frozen=True, slots=True)
class Assignment:
    """The outcome of the work: a community, or none, for each fact of a revision."""

    facts: SearchedFacts
    found: Found
    began_s: float
    """By the monotonic clock."""

    @property
    def of_revision(self) -> Revision:
        return self.facts.snapshot.revision

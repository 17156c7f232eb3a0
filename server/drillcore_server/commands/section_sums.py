"""The sums of the vectors of each section's chunks, made with the next embedding model before it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from drillcore_server.derived.vectors import unpacked
from drillcore_server.domain.ids import DocumentId, NodeId, Revision
from drillcore_server.store import revisions, versioned
from drillcore_server.store.hierarchy import CorpusView, HierarchyWrites, node_id
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.writes import Write


@dataclass(slots=True)
class SectionSums:
    """Kept while a migration is made: at a later revision only those sections are summed up anew that have changed."""

    model: int
    sums: dict[NodeId, bytes] = field(default_factory=dict)
    at: Revision | None = None

    def bring_up_to(self, snapshot: Snapshot, made: Mapping[NodeId, bytes]) -> None:
        """`made` are vectors of chunks that are not stored yet."""
        if self.at is None or self.at > snapshot.revision:
            self.sums.clear()
            ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
        else:
            ids = self._changed(snapshot, self.at)
        there = snapshot.find(ids, lambda view, one: view.section(one) is not None)
        for section, is_there in zip(ids, there, strict=True):
            self.sums.pop(section, None)
            if is_there:
                self.sums[section] = self._sum(snapshot, section, made)
        self.at = snapshot.revision

    def writes(self, snapshot: Snapshot, make: HierarchyWrites) -> Iterator[Write]:
        """Every section with its new sum. They say what they said, so their versions stay."""
        ids = sorted(self.sums)
        for section, cited in zip(
            snapshot.each(ids, lambda view, one: view.section(one)), snapshot.find(ids, _cited), strict=True
        ):
            yield from make.put_section(replace(section, vector_sum=self.sums[section.id]), section)
            yield from make.cite_documents(section.id, cited)

    def _changed(self, snapshot: Snapshot, since: Revision) -> list[NodeId]:
        records = snapshot.read(lambda view: list(revisions.between(view.tr, view.keys, since, view.revision)))
        return sorted({one for record in records for one in record.sections})

    def _sum(self, snapshot: Snapshot, section: NodeId, made: Mapping[NodeId, bytes]) -> bytes:
        members = snapshot.read(lambda view: list(view.chunks_of(section)))
        total: npt.NDArray[np.float64] | None = None
        stored = snapshot.each(members, lambda view, one: made.get(one) or view.vector(self.model, one))
        for vector in map(unpacked, stored):
            total = vector.astype(np.float64) if total is None else total + vector
        assert total is not None, "a section has chunks"
        return total.astype("<f4").tobytes()


def _cited(view: CorpusView, section: NodeId) -> list[DocumentId]:
    """The documents that the section is noted with: those that it cites, or all below it if a client made it."""
    record = versioned.newest(view.tr, view.keys.section(section), view.revision)
    found = view.section(section)
    below = {one.document for one in view.members(section)}
    below |= set() if found is None else {one.document for one in found.citations}
    return sorted(
        one for one in below if versioned.newest(view.tr, view.keys.citing(one, section), view.revision) == record
    )

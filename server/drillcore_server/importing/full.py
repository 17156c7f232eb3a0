"""The records of a full core, checked one by one, and against each other when all are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from drillcore.cores.failures import WrongShape
from drillcore.cores.parts import CoreRoot
from drillcore.cores.tags import GRAPH_EMBEDDINGS, TRIPLES
from drillcore_server.domain.ids import SourceId
from drillcore_server.importing.decoding import check, fields
from drillcore_server.importing.full_facts import FactIntake
from drillcore_server.importing.full_hierarchy import HierarchyIntake
from drillcore_server.importing.full_records import DocumentText, FullRecord, FullRecords
from drillcore_server.importing.full_rest import RestIntake
from drillcore_server.importing.library import LibraryIntake
from drillcore_server.importing.quads import QuadIntake
from drillcore_server.importing.vectors import VectorIntake

_OF_SOURCES = ("document", "chunk", "section", "master")
"""Kinds that a core without sources has none of."""
_ORDER = {
    kind: place
    for place, kinds in enumerate(
        (
            ("document", "chunk"),
            ("section",),
            ("master",),
            ("source",),
            ("fact",),
            ("community",),
            ("turn",),
            ("edge",),
            ("library",),
            ("embedding",),
            ("signature",),
            ("end",),
        )
    )
    for kind in kinds
}
"""Each is checked against those before it, which therefore have to be there."""


class FullIntake:
    def __init__(self, records: FullRecords, root: CoreRoot, vectors: VectorIntake) -> None:
        dimensions = root.model.dimensions if root.model else 0
        self.records = records
        self._root = root
        self._vectors = vectors
        self.hierarchy = hierarchy = HierarchyIntake(records, dimensions)
        self.facts = facts = FactIntake(hierarchy)
        self.rest = rest = RestIntake(hierarchy, facts)
        self.counts: Counter[str] = Counter()
        self._end: Mapping[str, int] | None = None
        self._place = 0
        """In that order, of the record that came last."""
        self._takers: dict[str, Callable[[list[Any]], None]] = {
            "document": hierarchy.take_document,
            "chunk": hierarchy.take_chunk,
            "section": hierarchy.take_section,
            "master": hierarchy.take_master,
            "source": facts.take_source,
            "fact": facts.take_fact,
            "community": facts.take_community,
            "turn": rest.take_turn,
            "edge": rest.take_edge,
            "library": rest.take_library,
            "embedding": lambda given: rest.take_embedding(given, vectors),
            "signature": rest.take_signature,
            "end": self._take_end,
        }

    def take(self, found: FullRecord | DocumentText) -> None:
        """Raises `WrongShape`."""
        check(self._end is None, "there is something behind the end")
        if isinstance(found, DocumentText):
            check(self._root.sources, "it is said to have no sources, and has a text")
            check(not self._place, "there is the text of a document behind what comes after it")
            self.hierarchy.take_text(found)
            return
        taker = self._takers.get(found.kind)
        if taker is None:
            raise WrongShape(f"records of the kind {found.kind!r:.40} are not known here")
        check(_ORDER[found.kind] >= self._place, f"there is a {found.kind} behind what comes after it")
        self._place = _ORDER[found.kind]
        check(self._root.sources or found.kind not in _OF_SOURCES, "it is said to have no sources, and has some")
        taker(found.fields)
        self.counts[found.kind] += 1

    def settle(self, library: LibraryIntake, quads: QuadIntake) -> None:
        """When all was taken. Raises `WrongShape`."""
        check(self._end is not None, "the core is not whole: it has no end")
        self.hierarchy.settle()
        self.facts.settle(self._vectors.of_facts())
        self.rest.settle(library)
        has_vectors = bool(self.hierarchy.chunks or self.facts.embedded)
        check(not has_vectors or self._root.model is not None, "nobody knows which model its vectors are of")
        used = {*self.rest.sources, *quads.sources, *self._vectors.sources} - {""}
        check(used <= self.facts.sources.keys(), "something is of a source that is not there")
        assert self._end is not None
        del self.counts["end"]
        counted = {**self.counts, TRIPLES: quads.taken, GRAPH_EMBEDDINGS: self._vectors.taken}
        check(self._end == counted, "the end counts other than there is")

    @property
    def sources(self) -> list[SourceId]:
        return sorted(self.facts.sources)

    def _take_end(self, given: list[Any]) -> None:
        (counts,) = fields("end", given, 1)
        is_counts = isinstance(counts, dict) and all(
            isinstance(kind, str) and type(count) is int for kind, count in counts.items()
        )
        check(is_counts, "the end does not say how much there is")
        self._end = counts

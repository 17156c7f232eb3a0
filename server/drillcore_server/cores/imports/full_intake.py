"""Checks the records of a full core: each one as it comes, and all against each other at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from drillcore_formats.cores.format import GRAPH_EMBEDDINGS, TRIPLES, WrongShape
from drillcore_formats.cores.parts import CoreRoot
from drillcore_server.cores.imports.full_facts import FactIntake, RestIntake
from drillcore_server.cores.imports.full_hierarchy import HierarchyIntake
from drillcore_server.cores.imports.full_records import DocumentText, FullRecord, FullRecords
from drillcore_server.cores.imports.graph_records import QuadIntake, VectorIntake
from drillcore_server.cores.imports.library_documents import LibraryIntake
from drillcore_server.cores.imports.record_decoder import check, fields
from drillcore_server.storage.ids import SourceId

_NEED_SOURCES = ("document", "chunk", "section", "master")
"""Kinds that a core without sources does not contain."""
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
"""Each kind is checked against those before it, which therefore must come first."""


class FullIntake:
    """Passes each record to the check for its kind, and keeps what the writes need later."""

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
        """Position of the last record's kind in `_ORDER`."""
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
        """Takes the next record. Raises `WrongShape`."""
        check(self._end is None, "a record follows the end")
        if isinstance(found, DocumentText):
            check(self._root.sources, "the root says that there are no sources, but a text follows")
            check(not self._place, "the text of a document comes too late")
            self.hierarchy.take_text(found)
            return
        taker = self._takers.get(found.kind)
        if taker is None:
            raise WrongShape(f"records of the kind {found.kind!r:.40} are unknown to this server")
        check(_ORDER[found.kind] >= self._place, f"a {found.kind} comes too late")
        self._place = _ORDER[found.kind]
        check(self._root.sources or found.kind not in _NEED_SOURCES, "the root says that there are no sources")
        taker(found.fields)
        self.counts[found.kind] += 1

    def settle(self, library: LibraryIntake, quads: QuadIntake) -> None:
        """Call it when all records were taken. Raises `WrongShape`."""
        check(self._end is not None, "the core is incomplete: it has no end")
        self.hierarchy.settle()
        self.facts.settle(self._vectors.of_facts())
        self.rest.settle(library)
        has_vectors = bool(self.hierarchy.chunks or self.facts.embedded)
        check(not has_vectors or self._root.model is not None, "the root does not name the model of the vectors")
        used = {*self.rest.sources, *quads.sources, *self._vectors.sources} - {""}
        check(used <= self.facts.sources.keys(), "a record refers to a source that is missing")
        assert self._end is not None
        del self.counts["end"]
        counted = {**self.counts, TRIPLES: quads.taken, GRAPH_EMBEDDINGS: self._vectors.taken}
        check(self._end == counted, "the counts at the end are wrong")

    @property
    def sources(self) -> list[SourceId]:
        return sorted(self.facts.sources)

    def _take_end(self, given: list[Any]) -> None:
        (counts,) = fields("end", given, 1)
        is_counts = isinstance(counts, dict) and all(
            isinstance(kind, str) and type(count) is int for kind, count in counts.items()
        )
        check(is_counts, "the end has no counts")
        self._end = counts

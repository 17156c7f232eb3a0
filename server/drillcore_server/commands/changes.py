"""A planned change of the hierarchy as the writes that make it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from drillcore_server.commands.corpus_reader import SnapshotReader
from drillcore_server.commands.document_facts import DocumentFacts
from drillcore_server.domain.sources import Source
from drillcore_server.ingest.embedding.ports import Vector
from drillcore_server.ingest.planning import HierarchyChange, SectionChange
from drillcore_server.store.hierarchy import HierarchyWrites
from drillcore_server.store.writes import Write


def writes_of(
    change: HierarchyChange,
    sources: Sequence[Source],
    reader: SnapshotReader,
    make: HierarchyWrites,
    facts: DocumentFacts,
) -> Iterator[Write]:
    """One by one, so that a large change need not be in memory as a whole; `reader` is of the revision before it."""
    replaced = {document.source: document for document in change.removed}
    for prepared in change.added:
        yield from make.put_document(prepared.document)
        for one in prepared.chunks:
            following = None if one.next_vector is None else _stored(one.next_vector)
            yield from make.put_chunk(one.chunk, one.page, _stored(one.vector), following)
        yield from facts.drawn(prepared, replaced.pop(prepared.document.source, None))
    for document in change.removed:
        yield from make.remove_document(document)
        for chunk in reader.snapshot.each(document.chunks, lambda view, one: view.chunk(one)):
            yield from make.remove_chunk(chunk)
        if document.source in replaced:
            yield from facts.left(document.source)
    for section in change.sections:
        yield from _section_writes(section, make)
    for source in sources:
        yield from make.put_source(facts.counted(source))
    yield from make.put_master(change.master, change.master_before, change.master_sources)
    yield from make.cite(change.master.id, change.master.citations)


def _stored(vector: Vector) -> bytes:
    return vector.astype(np.dtype("<f2")).tobytes()


def _section_writes(change: SectionChange, make: HierarchyWrites) -> Iterator[Write]:
    for chunk in change.left:
        yield from make.leave(change.id, chunk)
    for chunk in change.joined:
        yield from make.join(change.id, chunk)
    if change.after is not None:
        yield from make.put_section(change.after, change.before)
        yield from make.cite(change.after.id, change.after.citations)
    elif change.before is not None:
        yield from make.remove_section(change.before)

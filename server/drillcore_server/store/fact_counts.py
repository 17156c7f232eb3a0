"""Keeps the source registry true when facts are changed by themselves, without a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from drillcore_server.domain.facts import Fact
from drillcore_server.domain.ids import SourceId
from drillcore_server.domain.sources import Source, counted, registered
from drillcore_server.store.hierarchy import HierarchyWrites
from drillcore_server.store.writes import Write


def source_writes(
    changes: Iterable[tuple[Fact | None, Fact | None]],
    source_of: Callable[[SourceId], Source | None],
    make: HierarchyWrites,
) -> Iterator[Write]:
    """The sources of facts that a revision changes, each given as it was and as it will be, with their new counts.

    None stands for a fact that was not there, or will not be. `source_of` reads at the revision before; a source that
    it does not know is registered. What a fact's source is never changes.
    """
    counts: Counter[SourceId] = Counter()
    seen_at: dict[SourceId, datetime] = {}
    for before, after in changes:
        fact = after or before
        assert fact is not None
        counts[fact.source] += counted(before, after)
        seen_at.setdefault(fact.source, fact.modified_at)
    for source, count in sorted(counts.items()):
        known = source_of(source)
        if known is None or count:
            record = known or registered(source, seen_at[source])
            yield from make.put_source(replace(record, fact_count=record.fact_count + count))

"""How often facts were read, and when last. Added up by the store itself, so that readers never wait for each other.

No part of a revision: reading a fact does not change it.

Keeps the source registry true when facts are changed by themselves, without a document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Atomic, Reader, Transaction
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.hierarchy.source_model import Source, registered
from drillcore_server.hierarchy.store import HierarchyWrites
from drillcore_server.kernel.unit import Notes
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import FactId, SourceId, from_microseconds, to_microseconds

_COUNT: Final = b"c"
_TIME: Final = b"t"


@dataclass(frozen=True, slots=True)
class Access:
    count: int = 0
    last_at: datetime | None = None


def note(tr: Transaction, keys: CorpusKeys, facts: Iterable[FactId], at: datetime) -> None:
    """Counts one access of each fact. Conflicts with nobody."""
    moment = max(to_microseconds(at), 0).to_bytes(8, "little")
    for fact in facts:
        key = keys.fact_access(fact)
        tr.add(key + _COUNT, 1)
        tr.atomic(Atomic.MAX, key + _TIME, moment)


def note_later(notes: Notes, keys: CorpusKeys, facts: Iterable[FactId], at: datetime) -> None:
    """Counts one access of each fact when the call that reads them is recorded."""
    ids = sorted(set(facts))
    notes.add(lambda tr: note(tr, keys, ids, at))


def read(tr: Reader, keys: CorpusKeys, facts: Sequence[FactId]) -> list[Access]:
    """Of each fact, in order."""
    wanted = [keys.fact_access(fact) + part for fact in facts for part in (_COUNT, _TIME)]
    stored = tr.get_many(wanted)
    return [_access(count, last) for count, last in zip(stored[::2], stored[1::2], strict=True)]


def forget(tr: Transaction, keys: CorpusKeys, facts: Iterable[FactId]) -> None:
    for fact in facts:
        key = keys.fact_access(fact)
        tr.clear_range(key, key + b"\xff")


def _access(count: bytes | None, last: bytes | None) -> Access:
    if count is None or last is None:
        return Access()
    return Access(int.from_bytes(count, "little"), from_microseconds(int.from_bytes(last, "little")))


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


def counted(before: Fact | None, after: Fact | None) -> int:
    """By how much a change of a fact changes its source's count."""
    return _counts(after) - _counts(before)


def _counts(fact: Fact | None) -> int:
    return int(fact is not None and fact.status is not FactStatus.DELETED)

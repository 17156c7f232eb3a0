"""How often facts were read, and when last. Added up by the store itself, so that readers never wait for each other.

No part of a revision: reading a fact does not change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Atomic, Reader, Transaction
from drillcore_server.domain.ids import FactId
from drillcore_server.domain.times import from_microseconds, to_microseconds
from drillcore_server.store.corpus_keys import CorpusKeys

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

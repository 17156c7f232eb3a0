"""How far the server is with archiving the facts of a corpus that nobody reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import FactId
from drillcore_server.storage.records import RecordKind


@dataclass(frozen=True, slots=True)
class Upkeep:
    """A walk over all facts that is under way, or has ended."""

    after: FactId | None = None
    """The last fact that was looked at; None before the first."""
    ended_at: datetime | None = None
    """When the last whole walk was over."""


UPKEEP = RecordKind(Upkeep)


def read(tr: Reader, keys: CorpusKeys) -> Upkeep:
    return UPKEEP.read(tr, keys.fact_upkeep()) or Upkeep()


def write(tr: Transaction, keys: CorpusKeys, before: Upkeep, now: Upkeep) -> None:
    """Moves it on, unless another server has done so."""
    if read(tr, keys) == before:
        UPKEEP.write(tr, keys.fact_upkeep(), now)

"""All indexes of a server, put together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog

from drillcore_fdb.engine import Engine
from drillcore_server.derived.fact_index import FactIndexes
from drillcore_server.derived.index_keeper import IndexKeeper
from drillcore_server.derived.index_snapshots import IndexSnapshots
from drillcore_server.derived.lexical_follower import LexicalIndexes
from drillcore_server.derived.sections import SectionCache, SectionIndexes
from drillcore_server.derived.settings import VectorSettings
from drillcore_server.derived.vectors import VectorCache
from drillcore_server.store.keyring import Keyring


@dataclass(frozen=True, slots=True)
class Indexes:
    facts: FactIndexes
    chunks: VectorCache
    sections: SectionIndexes
    outlines: SectionCache
    """What the sections' index is made of; those who add documents use it too."""
    keeper: IndexKeeper
    """Of the first two. Whoever has the indexes starts and stops it."""
    words: LexicalIndexes
    """Of facts, by their words."""


def open_indexes(
    engine: Engine, keyring: Keyring, settings: VectorSettings, folder: Path, log: structlog.stdlib.BoundLogger
) -> Indexes:
    """Empty; each is read, from the store or a snapshot in the folder, when it is first asked for."""
    keeper, snapshots = IndexKeeper(log), IndexSnapshots(folder, keyring, settings, log)
    outlines = SectionCache(engine)
    sections = SectionIndexes(outlines, settings)
    words = LexicalIndexes(engine)
    keyring.on_erased += [snapshots.remove_erased, sections.forget, words.forget]
    return Indexes(
        FactIndexes(engine, settings, keeper, snapshots),
        VectorCache(engine, settings, keeper, snapshots),
        sections,
        outlines,
        keeper,
        words,
    )

"""All search indexes of a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog

from drillcore_fdb.engine import Engine
from drillcore_server.facts.index import FactIndexes
from drillcore_server.facts.lexical.lexical_cache import LexicalIndexes
from drillcore_server.hierarchy.chunk_index import VectorCache
from drillcore_server.hierarchy.sections import SectionCache, SectionIndexes
from drillcore_server.storage.keyring import Keyring
from drillcore_server.vectors.index_keeper import IndexKeeper
from drillcore_server.vectors.index_snapshots import IndexSnapshots
from drillcore_server.vectors.settings import VectorSettings


@dataclass(frozen=True, slots=True)
class Indexes:
    facts: FactIndexes
    chunks: VectorCache
    sections: SectionIndexes
    outlines: SectionCache
    """The sections in memory, from which their index is made. Adding documents uses them too."""
    keeper: IndexKeeper
    """Maintains `facts` and `chunks` in the background, and saves them on a stop."""
    words: LexicalIndexes
    """Finds facts by their words."""


def open_indexes(
    engine: Engine, keyring: Keyring, settings: VectorSettings, folder: Path, log: structlog.stdlib.BoundLogger
) -> Indexes:
    """Makes the indexes, all empty. Each is loaded from the store, or from a snapshot in the folder, on first use."""
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

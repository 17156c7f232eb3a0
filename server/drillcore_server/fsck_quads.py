"""Proves that the quads of a corpus agree with what leads to them, and with the source registry.

Nothing of the quads is held, so that a corpus may have any number: if every record has its six entries, and there are
six times as many entries as records, then every entry has its record.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from drillcore_fdb.errors import EngineError
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import SourceId
from drillcore_server.store import versioned
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.quads import PLACE_BYTES, QuadHashes, decode_record, index_keys, indexed_place
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.versioned import Entry

_AT_ONCE: Final = 200
"""Records whose entries are looked for in one transaction."""


class QuadCheck:
    """One corpus at one revision."""

    def __init__(self, snapshot: Snapshot, keyring: Keyring, corpus: Corpus) -> None:
        self._snapshot = snapshot
        self._hashes = QuadHashes.of(keyring, corpus.number)
        self._sources: set[SourceId] = set()

    def problems(self) -> Iterator[str]:
        records = 0
        stored = self._snapshot.entries(self._snapshot.keys.quads())
        while batch := list(islice(stored, _AT_ONCE)):
            records += len(batch)
            for entry in batch:
                yield from self._record(entry)
            yield from self._snapshot.read(lambda view, b=batch: list(_missing(view, b)))  # type: ignore[misc]
        yield from self._leading_nowhere(records)
        yield from self._unregistered()

    def _record(self, entry: Entry) -> Iterator[str]:
        try:
            quad, source = decode_record(self._snapshot.sealed.opened(entry).value)
        except EngineError as error:
            yield error.message
            return
        if source:
            self._sources.add(source)
        if self._hashes.place(quad, source) != entry.key[-PLACE_BYTES:]:
            yield f"a quad is kept as another: {entry.key.hex()}"

    def _leading_nowhere(self, records: int) -> Iterator[str]:
        entries = self._snapshot.keys.all_quad_entries()
        if sum(1 for _ in self._snapshot.entries(entries)) == 6 * records:
            return
        for entry in self._snapshot.entries(entries):
            key = self._snapshot.keys.quad(indexed_place(self._snapshot.keys, entry.key))
            if self._snapshot.read(lambda view, k=key: versioned.get(view.tr, k, view.revision)) is None:  # type: ignore[misc]
                yield f"the quads' index has {entry.key.hex()}, which leads nowhere"

    def _unregistered(self) -> Iterator[str]:
        sources = sorted(self._sources)
        known = self._snapshot.find(sources, lambda view, one: view.source_left(one) is not None)
        if missing := sum(not one for one in known):
            yield f"{missing} sources of quads are not registered"


def _missing(view: CorpusView, records: list[Entry]) -> Iterator[str]:
    for record in records:
        for key in index_keys(view.keys, record.key[-PLACE_BYTES:]):
            if versioned.get(view.tr, key, view.revision) is None:
                yield f"the quads' index lacks {key.hex()}"

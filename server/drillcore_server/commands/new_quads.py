"""Which of the quads that a revision is to put are new, and their writes; in bounded memory, however many there are.

A quad may come twice in a file, but a revision writes a record once. The last ones are remembered; of those before, the
store itself tells: a large revision is staged while it is made, and what left our memory is staged long since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.domain.quads import Quad, SourcedQuad
from drillcore_server.store import versioned
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.quads import QuadWrites
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.writes import Write

REMEMBERED_MIN: Final = 20_000
"""Their writes are ten times what `Reviser` holds back before it stages: seven a quad, of 200 bytes each at least."""
_AT_ONCE: Final = 500
"""Looked for in one transaction."""


class NewQuads:
    """For one plan: counts what it went through."""

    def __init__(self, base: Snapshot, make: QuadWrites) -> None:
        self._make = make
        self._base = base
        self._staged = base.at(Revision(base.revision + 1))
        self._last: set[bytes] = set()
        self._before: set[bytes] = set()
        self.added = 0
        self.known = 0
        """That were there already, of their source, or came before."""

    def of_source(self, quads: Iterable[Quad], source: SourceId) -> Iterator[Write]:
        return self.writes(SourcedQuad(one, source) for one in quads)

    def writes(self, quads: Iterable[SourcedQuad]) -> Iterator[Write]:
        """Of those that are new. May be gone through once."""
        coming = iter(quads)
        while batch := list(islice(coming, _AT_ONCE)):
            for place, (quad, source) in self._new(batch):
                yield from self._make.add_at(place, quad, source)

    def _new(self, batch: list[SourcedQuad]) -> list[tuple[bytes, SourcedQuad]]:
        place = self._make.hashes.place
        coming = {place(*one): one for one in batch}
        for known in [one for one in coming if one in self._last or one in self._before]:
            del coming[known]
        for known in self._there(list(coming)):
            del coming[known]
        self.added += len(coming)
        self.known += len(batch) - len(coming)
        self._remember(coming)
        return list(coming.items())

    def _there(self, places: list[bytes]) -> list[bytes]:
        snapshot = self._staged if self._before else self._base

        def there(view: CorpusView) -> list[bytes]:
            keys, revision = view.keys, view.revision
            return [one for one in places if versioned.get(view.tr, keys.quad(one), revision) is not None]

        return snapshot.read(there)

    def _remember(self, places: Iterable[bytes]) -> None:
        if len(self._last) >= REMEMBERED_MIN:
            self._before, self._last = self._last, set()
        self._last.update(places)

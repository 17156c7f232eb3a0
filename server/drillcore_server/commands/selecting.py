"""Which nodes of a corpus the filters of a query allow, found through the indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.filters import Filters
from drillcore_server.domain.ids import NodeId
from drillcore_server.domain.nodes import Level
from drillcore_server.store.hierarchy import HierarchyWrites
from drillcore_server.store.keyring import KeyErased

K = TypeVar("K")
R = TypeVar("R")


def left(get: Callable[[K], R | None], one: K) -> R | None:
    """What `get` finds; None also if that was erased."""
    try:
        return get(one)
    except KeyErased:
        return None


class Selection:
    def __init__(self, library: Library, shelf: Shelf, filters: Filters) -> None:
        self._library = library
        self._shelf = shelf
        self._view = shelf.view
        self._filters = filters

    def nodes(self, level: Level) -> Iterator[NodeId]:
        """The allowed nodes of a level, in order."""
        if level is Level.MASTER:
            master, chunks = self._shelf.master_id, self.allowed(Level.CHUNK)
            if master is not None and (chunks is None or chunks):
                yield master
            return
        allowed = self.allowed(Level.SECTION if level is Level.SECTION else Level.CHUNK)
        for section in self._view.section_ids():
            if level is Level.SECTION:
                if allowed is None or section in allowed:
                    yield section
                continue
            for chunk in self._view.chunks_of(section):
                if allowed is None or chunk in allowed:
                    if level is Level.CHUNK:
                        yield chunk
                    else:
                        yield from (raw.id for raw in self._shelf.raws_left(chunk))

    def allowed(self, level: Level) -> set[NodeId] | None:
        """The allowed sections or chunks; None means all."""
        chunks = self._allowed_chunks(with_categories=level is Level.CHUNK)
        if level is Level.CHUNK:
            return chunks
        sections = None if chunks is None else {parent for one in chunks if (parent := self._view.parent(one))}
        if self._filters.categories:
            named = self._sections_named()
            sections = named if sections is None else sections & named
        return sections

    def _allowed_chunks(self, *, with_categories: bool) -> set[NodeId] | None:
        filters = self._filters
        sets: list[set[NodeId]] = []
        if with_categories and filters.categories:
            sets.append({chunk for section in self._sections_named() for chunk in self._view.chunks_of(section)})
        if filters.documents or filters.sources:
            sets.append(self._chunks_of_documents())
        sets += [self._chunks_naming(entity.type, entity.value) for entity in filters.entities]
        if filters.created_after is not None or filters.created_before is not None:
            sets.append(self._chunks_in_time())
        return set.intersection(*sets) if sets else None

    def _sections_named(self) -> set[NodeId]:
        hashed = self._hashes().hashed
        return {one for category in self._filters.categories for one in self._view.sections_in(hashed(category))}

    def _chunks_naming(self, kind: str, value: str) -> set[NodeId]:
        hashes = self._hashes()
        return set(self._view.chunks_naming(hashes.hashed_kind(kind), hashes.hashed(value) if value else b""))

    def _chunks_of_documents(self) -> set[NodeId]:
        documents = set(self._filters.documents) or None
        if self._filters.sources:
            sources = [left(self._view.source, one) for one in self._filters.sources]
            of_sources = {source.document for source in sources if source is not None and source.document}
            documents = of_sources if documents is None else documents & of_sources
        found = [left(self._view.document, one) for one in documents or ()]
        return {chunk for document in found if document is not None for chunk in document.chunks}

    def _chunks_in_time(self) -> set[NodeId]:
        return {
            chunk
            for document in self._view.documents()
            if self._filters.allows_time(document.created_at)
            for chunk in document.chunks
        }

    def _hashes(self) -> HierarchyWrites:
        corpus = self._shelf.corpus
        return HierarchyWrites(self._library.unit.keys, corpus.tenant_id, corpus.number, self._library.keyring)

"""What a corpus has, and had, when a whole hierarchy replaces it. Read in batches: a corpus may be large."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import Exists
from drillcore_server.domain.ids import DocumentId, NodeId, Revision, SourceId
from drillcore_server.domain.nodes import Document, Level, Master, chunk_of_raw
from drillcore_server.domain.sources import Source
from drillcore_server.store import versioned
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.hierarchy import DOCUMENT, CorpusView, node_id
from drillcore_server.store.keyring import KeyErased
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.writes import Write, check_free, locator_of

T = TypeVar("T")
R = TypeVar("R")
_BATCH: Final = 1_000
"""Records read in one transaction, well within five seconds."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A corpus at the revision that is to be replaced."""

    snapshot: Snapshot
    keyspace: Keyspace
    corpus: Corpus

    @property
    def keys(self) -> CorpusKeys:
        return self.snapshot.keys

    def known(self, levels: Mapping[NodeId, Level]) -> set[NodeId]:
        """Those nodes that the corpus has or had. Raises `Exists` if another corpus or level has one.

        To know it before anything is written: the commit makes sure of it again.
        """
        known: set[NodeId] = set()
        for batch in batches(levels.items()):
            own = [self._locator(node) for node, _ in batch]
            blocks = [self._locator(chunk_of_raw(node)[0]) for node, _ in batch]
            stored = self.snapshot.read(lambda view, keys=own + blocks: view.tr.get_many(keys))  # type: ignore[misc]
            for place, (node, level) in enumerate(batch):
                wanted = locator_of(level, self.corpus.number)
                block = stored[len(batch) + place] if blocks[place] != own[place] else None
                check_free(own[place], wanted, stored[place], block)
                if stored[place] is not None:
                    known.add(node)
        return known

    def _locator(self, node: NodeId) -> bytes:
        return self.keyspace.locator(self.corpus.tenant_id, node)

    def last(self, decode: Callable[[bytes], R], keys: Sequence[bytes], what: Callable[[R], T]) -> list[T | None]:
        """`what` is wanted of the last record of each key, whether the corpus still has it or not."""
        stored = self.snapshot.find(keys, _last)
        return [None if record is None else what(decode(record)) for record in stored]

    def last_master(self, node: NodeId) -> Master | None:
        """The last master of this id: a corpus may have had others since."""
        at = self.snapshot
        while True:
            master, written = at.read(
                lambda view: (view.master_left(), versioned.newest(view.tr, view.keys.master(), view.revision))
            )
            if written is None or (master is not None and master.id == node):
                return master
            at = at.at(Revision(written - 1))

    def sources(self, ids: Sequence[SourceId]) -> list[Source | None]:
        return list(self.snapshot.find(ids, lambda view, one: view.source(one)))

    def documents(self) -> Iterator[Document]:
        """Those the corpus has."""
        for entry in self.snapshot.entries(self.keys.documents()):
            yield DOCUMENT.decode(self.snapshot.sealed.opened(entry).value)

    def section_ids(self) -> set[NodeId]:
        return {node_id(entry.key[-16:]) for entry in self.snapshot.entries(self.keys.listed_sections())}

    def removals(
        self, nodes: Container[NodeId], documents: Container[DocumentId], models: Iterable[tuple[int, bool]]
    ) -> Iterator[Write]:
        """Takes away what the corpus has, but for the records of these nodes and documents, which get new ones.

        All entries of the indexes go: what new nodes have there is to be written after this. `models` are those that
        have vectors, each with whether it is still used: then the vectors of these nodes stay, too.
        """
        keys, sections = self.keys, self.section_ids()
        indexes = (keys.all_categories(), keys.listed_sections(), keys.all_members(), keys.all_entities())
        for index in (*indexes, keys.all_embedded()):
            yield from (Write(entry.key, None) for entry in self.snapshot.entries(index))
        yield from (Write(keys.section(one), None) for one in sorted(sections) if one not in nodes)
        for entry in self.snapshot.entries(keys.parents()):
            node = node_id(entry.key[-16:])
            if node not in nodes:
                yield Write(entry.key, None)
                if node_id(entry.value) in sections:
                    yield Write(keys.chunk(node), None)
        for model, is_used in models:
            for entry in self.snapshot.entries(keys.vectors(model)):
                if not is_used or node_id(entry.key[-16:]) not in nodes:
                    yield Write(entry.key, None)
        for entry in self.snapshot.entries(keys.documents()):
            if DocumentId(UUID(bytes=entry.key[-16:])) not in documents:
                yield Write(entry.key, None)


def _last(view: CorpusView, key: bytes) -> bytes | None:
    there = versioned.last_there(view.tr, key, view.revision)
    try:
        entry = None if there is None else view.sealed.get(view.tr, key, there)
    except KeyErased:
        message = "what had one of these ids was erased; give it a new one"
        raise Exists(Reason.NODE_EXISTS, message) from None
    return None if entry is None else entry.value


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """As many as are read in one transaction."""
    todo = iter(items)
    while batch := list(islice(todo, _BATCH)):
        yield batch

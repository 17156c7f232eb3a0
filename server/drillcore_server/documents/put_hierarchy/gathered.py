"""A hierarchy as a client sends it: gathered node by node, in any order, and checked as a whole.

Nodes are kept encoded: a hierarchy may be large, and most of it waits for its last node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.documents.put_hierarchy.hierarchy_drafts import (
    CHUNK_CHARACTERS_MAX,
    CHUNK_RAWS_MAX,
    ChunkDraft,
    CitationDraft,
    DocumentDraft,
    MasterDraft,
    NodeDraft,
    RawDraft,
    SectionDraft,
    invalid,
)
from drillcore_server.hierarchy.model import Citation, Raw, RawPage
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import DocumentId, Level, NodeId, SourceId
from drillcore_server.storage.records import RecordKind

_SECTION: Final = RecordKind(SectionDraft)
_CHUNK: Final = RecordKind(ChunkDraft)
_RAW: Final = RecordKind(RawDraft)
_LEVELS: Final = {
    MasterDraft: Level.MASTER,
    SectionDraft: Level.SECTION,
    ChunkDraft: Level.CHUNK,
    RawDraft: Level.RAW,
}


@dataclass(frozen=True, slots=True)
class ChunkParts:
    """A chunk with its text."""

    draft: ChunkDraft
    page: RawPage
    raw_ids: tuple[NodeId, ...]

    @property
    def text(self) -> str:
        return self.page.text


class ClientHierarchy:
    """Take documents, then nodes; `check` says whether they make up a hierarchy. All refusals name the node."""

    def __init__(self) -> None:
        self.documents: dict[DocumentId, DocumentDraft] = {}
        self.levels: dict[NodeId, Level] = {}
        """Of every node."""
        self.vector_bytes = 0
        """Of each chunk's vector; 0 if there are none."""
        self._master: MasterDraft | None = None
        self._parents: dict[NodeId, NodeId] = {}
        self._sections: dict[NodeId, bytes] = {}
        self._chunks: dict[NodeId, bytes] = {}
        self._chunks_of: dict[DocumentId, list[NodeId]] = {}
        self._raws: dict[NodeId, list[bytes]] = {}
        self._sources: set[SourceId] = set()

    @property
    def master(self) -> MasterDraft:
        assert self._master is not None, "`check` comes first"
        return self._master

    def take_document(self, draft: DocumentDraft) -> None:
        if draft.id in self.documents:
            raise invalid(f"document {draft.id}", "is there twice")
        if draft.source in self._sources:
            raise invalid(f"document {draft.id}", "has the source of another document")
        self._sources.add(draft.source)
        self.documents[draft.id] = draft

    def take_node(self, draft: NodeDraft) -> None:
        level = _LEVELS[type(draft)]
        what = _named(level, draft.id)
        if draft.id in self.levels or DocumentId(draft.id) in self.documents:
            raise invalid(what, "has the id of another node or document")
        if isinstance(draft, MasterDraft):
            if self._master is not None:
                raise invalid(what, f"is a second master, beside {self._master.id}")
            self._master = draft
        else:
            self._parents[draft.id] = draft.parent
        self.levels[draft.id] = level
        if isinstance(draft, SectionDraft):
            self._sections[draft.id] = _SECTION.encode(draft)
        elif isinstance(draft, ChunkDraft):
            self._take_chunk(draft, what)
        elif isinstance(draft, RawDraft):
            self._raws.setdefault(draft.parent, []).append(_RAW.encode(draft))

    def _take_chunk(self, draft: ChunkDraft, what: str) -> None:
        if draft.document not in self.documents:
            raise invalid(what, f"is of document {draft.document}, which is not in this hierarchy")
        if not self._chunks:
            self.vector_bytes = len(draft.vector)
        elif bool(draft.vector) != bool(self.vector_bytes):
            message = f"{what} has {'an' if draft.vector else 'no'} embedding: all chunks have one, or none has"
            raise BadInput(Reason.INVALID_VECTOR, message, node=str(draft.id))
        elif len(draft.vector) != self.vector_bytes:
            sizes = f"{len(draft.vector) // 2} components, others have {self.vector_bytes // 2}"
            raise BadInput(Reason.INVALID_VECTOR, f"the embedding of {what} has {sizes}", node=str(draft.id))
        self._chunks[draft.id] = _CHUNK.encode(draft)
        self._chunks_of.setdefault(draft.document, []).append(draft.id)

    def check(self) -> None:
        """Raises `BadInput` unless every node is where it belongs. `give_chunks` and `cited` check what nodes say."""
        if self._master is None:
            raise BadInput(Reason.INVALID_HIERARCHY, "there is no master")
        for node, parent in self._parents.items():
            self._check_parent(node, parent)
        filled = set(self._parents.values())
        for node, level in self.levels.items():
            if level in {Level.SECTION, Level.CHUNK} and node not in filled:
                raise invalid(_named(level, node), f"has no {Level(level - 1).word}")
        for document in self.documents:
            if document not in self._chunks_of:
                raise invalid(f"document {document}", "has no chunk")

    def _check_parent(self, node: NodeId, parent: NodeId) -> None:
        what, level = _named(self.levels[node], node), self.levels.get(parent)
        if level is None:
            raise invalid(what, f"has the parent {parent}, which is not in this hierarchy")
        if level != self.levels[node] + 1:
            message = f"has the parent {parent}, which is a {level.word}: it must be one level above"
            raise invalid(what, message)

    def sections(self) -> Iterator[SectionDraft]:
        return map(_SECTION.decode, self._sections.values())

    def give_chunks(self, document: DocumentId) -> list[ChunkParts]:
        """A document's chunks in reading order. Raises `BadInput` if they contradict each other or themselves.

        They are given away: what is made of them takes as much memory, and both at once would take twice as much.
        """
        chunks = [self._give_chunk(one) for one in self._chunks_of.pop(document)]
        chunks.sort(key=lambda one: (one.page.span, one.draft.id))
        _check_agreement(chunks)
        return chunks

    def _give_chunk(self, chunk: NodeId) -> ChunkParts:
        draft = _CHUNK.decode(self._chunks.pop(chunk))
        raws = sorted((_RAW.decode(one) for one in self._raws.pop(chunk)), key=lambda raw: (raw.span, raw.id))
        _check_raws(draft, raws)
        page = RawPage(tuple(Raw(raw.document, raw.span, raw.content) for raw in raws))
        return ChunkParts(draft, page, tuple(raw.id for raw in raws))

    def check_citation(self, citation: CitationDraft, what: str, page: RawPage) -> Citation:
        """What the store keeps of a citation. `page` is of the chunk that it names."""
        document = page.raws[0].document
        if citation.document not in {None, document}:
            raise invalid(what, f"cites chunk {citation.chunk} as of document {citation.document}: it is of {document}")
        span = citation.span
        if not len(span) or not page.holds(span):
            message = (
                f"cites characters {span.start} to {span.end} of chunk {citation.chunk}, which its raws do not hold"
            )
            raise invalid(what, message)
        if citation.text and citation.text != page.text_of(span):
            message = f"cites a text that does not stand at characters {span.start} to {span.end} of the document"
            raise invalid(what, message)
        return Citation(document, citation.chunk, span, citation.weight)

    def cited(
        self,
        citation: CitationDraft,
        what: str,
        page_of: Callable[[NodeId], RawPage],
        below: NodeId | None = None,
    ) -> Citation:
        """The same, of any chunk of the hierarchy, or of one `below` a section. `page_of` has the chunks' raws."""
        if self.levels.get(citation.chunk) is not Level.CHUNK:
            raise invalid(what, f"cites {citation.chunk}, which is no chunk of this hierarchy")
        if below is not None and self._parents[citation.chunk] != below:
            raise invalid(what, f"cites chunk {citation.chunk}, which is not below it")
        return self.check_citation(citation, what, page_of(citation.chunk))


def _named(level: Level, node: NodeId) -> str:
    return f"{level.word} {node}"


def _check_raws(chunk: ChunkDraft, raws: list[RawDraft]) -> None:
    """They are of the chunk's document, follow each other, and are not too many."""
    if len(raws) > CHUNK_RAWS_MAX:
        raise _too_large(chunk, f"{CHUNK_RAWS_MAX} raws")
    for spans in ([raw.span for raw in raws], [quote.span for quote in chunk.quotes]):
        if sum(span.end - span.start for span in spans) > CHUNK_CHARACTERS_MAX:
            raise _too_large(chunk, f"{CHUNK_CHARACTERS_MAX} characters in its raws or quotes")
    end = 0
    for raw in raws:
        if raw.document != chunk.document:
            raise invalid(f"raw {raw.id}", f"is of document {raw.document}, its chunk of {chunk.document}")
        if raw.span.start < end:
            raise invalid(f"raw {raw.id}", f"overlaps another raw of its chunk at character {raw.span.start}")
        end = raw.span.end


def _too_large(chunk: ChunkDraft, limit: str) -> BadInput:
    return BadInput(Reason.TOO_LARGE, f"chunk {chunk.id} has over {limit}", node=str(chunk.id))


def _check_agreement(chunks: list[ChunkParts]) -> None:
    """Where chunks overlap they have the same characters."""
    raws = sorted(
        ((raw, one) for chunk in chunks for raw, one in zip(chunk.page.raws, chunk.raw_ids, strict=True)),
        key=lambda pair: pair[0].span,
    )
    furthest: tuple[Raw, NodeId] | None = None
    for raw, node in raws:
        if furthest is not None and raw.span.start < furthest[0].span.end:
            before, other = furthest
            shared = min(raw.span.end, before.span.end) - raw.span.start
            start = raw.span.start - before.span.start
            if raw.content[:shared] != before.content[start : start + shared]:
                raise invalid(f"raw {node}", f"has other characters than raw {other} where both are")
        if furthest is None or raw.span.end > furthest[0].span.end:
            furthest = raw, node

"""A hierarchy as a client sends it: drafts of documents and nodes, in any order, that are checked as a whole.

Drafts lack everything that the server makes itself. Limits are for one node; a hierarchy as a whole has no limit here.
Nodes are kept encoded, because a hierarchy may be large and cannot be checked before its last node is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.digests import Entity, FindingKind, MadeBy
from drillcore_server.hierarchy.model import Citation, Raw, RawPage
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, DocumentId, Level, NodeId, SourceId, Span
from drillcore_server.storage.records import RecordKind
from drillcore_server.vectors.stored_vectors import dimensions_of

CHUNK_CHARACTERS_MAX: Final = 1_000_000
"""The limit for the raws of a chunk together, and for its quotes together."""
CHUNK_RAWS_MAX: Final = 10_000
NODE_BYTES_MAX: Final = 5_000_000
"""The limit for a node as a message, so that it fits into an answer."""
DOCUMENT_CHARACTERS_MAX: Final = 1 << 40
CHARACTERS_MAX: Final[Mapping[str, int]] = {
    "summary": 100_000,
    "content": CHUNK_CHARACTERS_MAX,
    "text": 10_000,
    "title": 1_000,
    "source_id": SOURCE_CHARACTERS_MAX,
    "headings": 1_000,
    "preprocessing": 1_000,
    "value": 1_000,
    "fallback_reason": 1_000,
    "category": 200,
    "keywords": 200,
    "media_type": 200,
    "type": 200,
    "kind": 200,
    "processor": 200,
    "version": 200,
}
"""The limit for a text, by the name of its field."""
ENTRIES_MAX: Final[Mapping[str, int]] = {
    "citations": 1_000,
    "entities": 1_000,
    "findings": 1_000,
    "quotes": 1_000,
    "keywords": 1_000,
    "headings": 100,
    "preprocessing": 100,
}
"""The limit for a list, by the name of its field."""
EMBEDDING_MODEL_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class DocumentDraft:
    id: DocumentId
    source: SourceId
    title: str
    media_type: str
    preprocessing: tuple[str, ...]
    metadata: Mapping[str, str]
    characters: int
    """The length of the whole text. 0 if the text ends with its last raw."""
    content_hash: str
    """The hash of the whole text. Empty if the client did not give it."""


@dataclass(frozen=True, slots=True)
class CitationDraft:
    chunk: NodeId
    document: DocumentId | None
    span: Span
    text: str
    """The text that the document must have at `span`. Empty if the text is not to be checked."""
    weight: float


@dataclass(frozen=True, slots=True)
class FindingDraft:
    kind: FindingKind
    text: str
    citation: CitationDraft


@dataclass(frozen=True, slots=True)
class MasterDraft:
    id: NodeId
    summary: str
    citations: tuple[CitationDraft, ...]
    findings: tuple[FindingDraft, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy


@dataclass(frozen=True, slots=True)
class SectionDraft:
    id: NodeId
    parent: NodeId
    title: str
    category: str
    summary: str
    citations: tuple[CitationDraft, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy


@dataclass(frozen=True, slots=True)
class ChunkDraft:
    id: NodeId
    parent: NodeId
    document: DocumentId
    headings: tuple[str, ...]
    page: int | None
    summary: str
    quotes: tuple[CitationDraft, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy
    vector: bytes
    """A vector of length 1, as it is stored. Empty if the server is to make it."""


@dataclass(frozen=True, slots=True)
class RawDraft:
    id: NodeId
    parent: NodeId
    document: DocumentId
    span: Span
    content: str


NodeDraft = MasterDraft | SectionDraft | ChunkDraft | RawDraft


def invalid(label: str, problem: str) -> BadInput:
    """Returns the refusal of a node or document. `label` names it, as in "chunk 5f0c..."."""
    return BadInput(Reason.INVALID_HIERARCHY, f"{label} {problem}", node=label.rpartition(" ")[2])


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
    """A chunk with its raws, which are its text."""

    draft: ChunkDraft
    page: RawPage
    raw_ids: tuple[NodeId, ...]

    @property
    def text(self) -> str:
        return self.page.text


class ClientHierarchy:
    """Collects the documents and then the nodes of a hierarchy. All refusals are `BadInput` and name the node.

    Call `check` after the last node. `release_chunks` and `check_citation` check texts and citations later, when the
    records are made.
    """

    def __init__(self) -> None:
        self.documents: dict[DocumentId, DocumentDraft] = {}
        self.levels: dict[NodeId, Level] = {}
        """The level of every node."""
        self.dimensions = 0
        """The size of each chunk's vector. 0 if the client gave no vectors."""
        self._master: MasterDraft | None = None
        self._parents: dict[NodeId, NodeId] = {}
        self._sections: dict[NodeId, bytes] = {}
        self._chunks: dict[NodeId, bytes] = {}
        self._chunks_of: dict[DocumentId, list[NodeId]] = {}
        self._raws: dict[NodeId, list[bytes]] = {}
        self._sources: set[SourceId] = set()

    @property
    def master(self) -> MasterDraft:
        assert self._master is not None, "call `check` first"
        return self._master

    def take_document(self, draft: DocumentDraft) -> None:
        if draft.id in self.documents:
            raise invalid(f"document {draft.id}", "comes twice")
        if draft.source in self._sources:
            raise invalid(f"document {draft.id}", "has the same source_id as another document")
        self._sources.add(draft.source)
        self.documents[draft.id] = draft

    def take_node(self, draft: NodeDraft) -> None:
        level = _LEVELS[type(draft)]
        label = _label(level, draft.id)
        if draft.id in self.levels or DocumentId(draft.id) in self.documents:
            raise invalid(label, "has the same id as another node or document")
        if isinstance(draft, MasterDraft):
            if self._master is not None:
                raise invalid(label, f"is a second master: the first is {self._master.id}")
            self._master = draft
        else:
            self._parents[draft.id] = draft.parent
        self.levels[draft.id] = level
        if isinstance(draft, SectionDraft):
            self._sections[draft.id] = _SECTION.encode(draft)
        elif isinstance(draft, ChunkDraft):
            self._take_chunk(draft, label)
        elif isinstance(draft, RawDraft):
            self._raws.setdefault(draft.parent, []).append(_RAW.encode(draft))

    def _take_chunk(self, draft: ChunkDraft, label: str) -> None:
        if draft.document not in self.documents:
            raise invalid(label, f"is of document {draft.document}, which is not in this hierarchy")
        if not self._chunks:
            self.dimensions = dimensions_of(draft.vector)
        elif bool(draft.vector) != bool(self.dimensions):
            message = f"{label} has {'an' if draft.vector else 'no'} embedding: give one for every chunk or for none"
            raise BadInput(Reason.INVALID_VECTOR, message, node=str(draft.id))
        elif dimensions_of(draft.vector) != self.dimensions:
            sizes = f"{dimensions_of(draft.vector)} components, but the first chunk has {self.dimensions}"
            raise BadInput(Reason.INVALID_VECTOR, f"the embedding of {label} has {sizes}", node=str(draft.id))
        self._chunks[draft.id] = _CHUNK.encode(draft)
        self._chunks_of.setdefault(draft.document, []).append(draft.id)

    def check(self) -> None:
        """Raises `BadInput` if the master or a parent is missing, or if a section, chunk or document is empty."""
        if self._master is None:
            raise BadInput(Reason.INVALID_HIERARCHY, "the hierarchy has no master: send one node with a master")
        for node, parent in self._parents.items():
            self._check_parent(node, parent)
        filled = set(self._parents.values())
        for node, level in self.levels.items():
            if level in {Level.SECTION, Level.CHUNK} and node not in filled:
                raise invalid(_label(level, node), f"has no {Level(level - 1).word}")
        for document in self.documents:
            if document not in self._chunks_of:
                raise invalid(f"document {document}", "has no chunk")

    def _check_parent(self, node: NodeId, parent: NodeId) -> None:
        label, level = _label(self.levels[node], node), self.levels.get(parent)
        if level is None:
            raise invalid(label, f"has the parent {parent}, which is not in this hierarchy")
        if level != self.levels[node] + 1:
            message = f"has the parent {parent}, which is a {level.word}: the parent must be one level above"
            raise invalid(label, message)

    def sections(self) -> Iterator[SectionDraft]:
        return map(_SECTION.decode, self._sections.values())

    def release_chunks(self, document: DocumentId) -> list[ChunkParts]:
        """Returns a document's chunks in reading order, and drops them here to save memory. Call it once a document.

        Raises `BadInput` if raws do not fit their chunk, or if chunks that overlap have different text.
        """
        chunks = [self._release_chunk(chunk) for chunk in self._chunks_of.pop(document)]
        chunks.sort(key=lambda chunk: (chunk.page.span, chunk.draft.id))
        _check_agreement(chunks)
        return chunks

    def _release_chunk(self, chunk: NodeId) -> ChunkParts:
        draft = _CHUNK.decode(self._chunks.pop(chunk))
        raws = sorted((_RAW.decode(encoded) for encoded in self._raws.pop(chunk)), key=lambda raw: (raw.span, raw.id))
        _check_raws(draft, raws)
        page = RawPage(tuple(Raw(raw.document, raw.span, raw.content) for raw in raws))
        return ChunkParts(draft, page, tuple(raw.id for raw in raws))

    def check_chunk_citation(self, citation: CitationDraft, label: str, page: RawPage) -> Citation:
        """Returns the citation as it is stored. `page` has the raws of the chunk that it names.

        Raises `BadInput` if the chunk does not contain the cited text.
        """
        document = page.raws[0].document
        if citation.document not in {None, document}:
            raise invalid(label, f"cites chunk {citation.chunk} of document {citation.document}: it is of {document}")
        span = citation.span
        if not len(span) or not page.holds(span):
            message = f"cites characters {span.start} to {span.end}, which chunk {citation.chunk} does not contain"
            raise invalid(label, message)
        if citation.text and citation.text != page.text_of(span):
            message = f"cites a text that the document does not have at characters {span.start} to {span.end}"
            raise invalid(label, message)
        return Citation(document, citation.chunk, span, citation.weight)

    def check_citation(
        self,
        citation: CitationDraft,
        label: str,
        page_of: Callable[[NodeId], RawPage],
        below: NodeId | None = None,
    ) -> Citation:
        """Returns a citation of any chunk in the hierarchy, as it is stored. `page_of` returns the raws of a chunk.

        With `below`, the chunk must be in that section. Raises `BadInput` like `check_chunk_citation`.
        """
        if self.levels.get(citation.chunk) is not Level.CHUNK:
            raise invalid(label, f"cites {citation.chunk}, which is no chunk of this hierarchy")
        if below is not None and self._parents[citation.chunk] != below:
            raise invalid(label, f"cites chunk {citation.chunk}, which is not in this section")
        return self.check_chunk_citation(citation, label, page_of(citation.chunk))


def _label(level: Level, node: NodeId) -> str:
    return f"{level.word} {node}"


def _check_raws(chunk: ChunkDraft, raws: list[RawDraft]) -> None:
    """Raises `BadInput` unless the raws are of the chunk's document, do not overlap, and keep the limits."""
    if len(raws) > CHUNK_RAWS_MAX:
        raise _too_large(chunk, f"{CHUNK_RAWS_MAX} raws")
    for spans in ([raw.span for raw in raws], [quote.span for quote in chunk.quotes]):
        if sum(span.end - span.start for span in spans) > CHUNK_CHARACTERS_MAX:
            raise _too_large(chunk, f"{CHUNK_CHARACTERS_MAX} characters in its raws or quotes")
    end = 0
    for raw in raws:
        if raw.document != chunk.document:
            raise invalid(f"raw {raw.id}", f"is of document {raw.document}, but its chunk is of {chunk.document}")
        if raw.span.start < end:
            raise invalid(f"raw {raw.id}", f"overlaps another raw of its chunk at character {raw.span.start}")
        end = raw.span.end


def _too_large(chunk: ChunkDraft, limit: str) -> BadInput:
    return BadInput(Reason.TOO_LARGE, f"chunk {chunk.id} has over {limit}", node=str(chunk.id))


def _check_agreement(chunks: list[ChunkParts]) -> None:
    """Raises `BadInput` if chunks that overlap have different characters there."""
    raws = sorted(
        ((raw, node) for chunk in chunks for raw, node in zip(chunk.page.raws, chunk.raw_ids, strict=True)),
        key=lambda pair: pair[0].span,
    )
    furthest: tuple[Raw, NodeId] | None = None
    for raw, node in raws:
        if furthest is not None and raw.span.start < furthest[0].span.end:
            before, before_node = furthest
            shared = min(raw.span.end, before.span.end) - raw.span.start
            start = raw.span.start - before.span.start
            if raw.content[:shared] != before.content[start : start + shared]:
                raise invalid(f"raw {node}", f"overlaps raw {before_node}, but has different characters there")
        if furthest is None or raw.span.end > furthest[0].span.end:
            furthest = raw, node

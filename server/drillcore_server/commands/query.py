"""Query."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.seeking import Sought, SoughtText, SoughtVector
from drillcore_server.commands.selecting import Selection
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.derived.vector_index import VectorIndex
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.filters import Filters
from drillcore_server.domain.found import AsOf, Node
from drillcore_server.domain.ids import CorpusId, NodeId, Revision, TenantId
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.pages import PageLimit, fill_page, make_token, page_size, read_token

CORPORA_MAX: Final = 100
TEXT_CHARACTERS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Hit:
    node: Node
    score: float | None


@dataclass(frozen=True, slots=True)
class Hits:
    hits: Sequence[Hit]
    revisions: Mapping[CorpusId, Revision]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, of which corpora, at which moment."""

    corpora: tuple[CorpusId, ...]
    level: Level
    text: str
    filters: Filters
    as_of: AsOf
    vector: tuple[float, ...] = ()
    """Instead of a text: searches by this, which `embedding_model` made."""
    embedding_model: str = ""

    def fingerprint(self) -> str:
        """The same for the same question, on any server."""
        vector = hashlib.sha256(repr((self.vector, self.embedding_model)).encode()).hexdigest() if self.vector else ""
        parts = (self.corpora, self.level, self.text, self.filters.in_order(), self.as_of, vector)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def query(library: Library, call: Call, *, tenant: TenantId | None, question: Question, size: int, token: str) -> Hits:
    """Nodes of one level that the filters allow: by meaning, best first, if there is a text; else in order."""
    _check(question)
    limit = PageLimit(page_size(size), library.unit.page_bytes_max)
    sought = _sought(library, question)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Hits:
        if question.text:
            trail.private["query"] = question.text
        listing = f"query of {granted.tenant} {question.fingerprint()}"
        cursor = _Cursor.read(read_token(listing, token))
        shelves = _shelves(library, tr, granted, trail, question, cursor)
        found = _listed(library, shelves, question) if sought is None else _ranked(library, shelves, question, sought)
        rest = islice(found, cursor.offset, None)
        left = ((shelf.node_left(one, question.level), score) for shelf, one, score in rest)
        hits, more = fill_page((_sized(node, score) for node, score in left if node is not None), limit)
        nodes = library.signed(tr, granted, [hit.node for hit in hits], *shelves)
        hits = [Hit(node, hit.score) for node, hit in zip(nodes, hits, strict=True)]
        trail.touch_nodes(nodes)
        revisions = {shelf.corpus.id: shelf.revision for shelf in shelves}
        if not more:
            return Hits(hits, revisions)
        following = _Cursor(cursor.offset + len(hits), tuple(revisions.items()))
        return Hits(hits, revisions, make_token(listing, following.written()))

    def search() -> Hits:
        return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)

    return search() if sought is None else sought.run(search)


def _sought(library: Library, question: Question) -> Sought | None:
    """What nodes are compared with, if anything."""
    if question.vector:
        return SoughtVector(question.vector, question.embedding_model)
    return SoughtText(library.embedders, question.text) if question.text.strip() else None


def _sized(node: Node, score: float | None) -> tuple[Hit, int]:
    return Hit(node, score), node.size_bytes


@dataclass(frozen=True, slots=True)
class _Cursor:
    """How many hits were shown, and the corpora and revisions they were of: later pages are of the same."""

    offset: int = 0
    revisions: tuple[tuple[CorpusId, Revision], ...] = ()

    @classmethod
    def read(cls, stored: bytes | None) -> _Cursor:
        if stored is None:
            return cls()
        pairs = (stored[place : place + 22] for place in range(6, len(stored), 22))
        revisions = tuple((CorpusId(UUID(bytes=one[:16])), Revision(int.from_bytes(one[16:], "big"))) for one in pairs)
        return cls(int.from_bytes(stored[:6], "big"), revisions)

    def written(self) -> bytes:
        pairs = (corpus.bytes + revision.to_bytes(6, "big") for corpus, revision in self.revisions)
        return self.offset.to_bytes(6, "big") + b"".join(pairs)


def _check(question: Question) -> None:
    if len(question.corpora) > CORPORA_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"name at most {CORPORA_MAX} corpora", field="corpus_ids")
    if len(question.text) > TEXT_CHARACTERS_MAX:
        message = f"text has over {TEXT_CHARACTERS_MAX} characters"
        raise BadInput(Reason.TOO_LARGE, message, field="text")
    if question.text and question.vector:
        raise BadInput(Reason.INVALID_ARGUMENT, "search by a text or by a vector, not by both", field="vector")
    if bool(question.vector) != bool(question.embedding_model):
        message = "a vector comes with the name of the model that made it, and a model's name with a vector"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding_model")
    if (question.text or question.vector) and question.level not in {Level.SECTION, Level.CHUNK}:
        field = "text" if question.text else "vector"
        raise BadInput(Reason.INVALID_ARGUMENT, "only sections and chunks are searched by meaning", field=field)
    if question.as_of.revision is not None and len(question.corpora) != 1:
        raise BadInput(Reason.INVALID_ARGUMENT, "a revision is of one corpus: name just that one", field="as_of")


def _shelves(
    library: Library, tr: Reader, granted: InTenant, trail: Trail, question: Question, cursor: _Cursor
) -> list[Shelf]:
    moments = [(one, AsOf(revision)) for one, revision in cursor.revisions]
    if not moments:
        ids = question.corpora or _everything(library, tr, granted, question.level)
        moments = [(one, question.as_of) for one in ids]
    shelves = [library.shelf(tr, granted, trail, one, as_of) for one, as_of in moments]
    for shelf in shelves:
        granted.check_level(shelf.corpus.id, question.level)
    return shelves


def _everything(library: Library, tr: Reader, granted: InTenant, level: Level) -> tuple[CorpusId, ...]:
    """Every corpus that the caller may read at this level, shared ones too."""
    stored = granted.corpora(tr, library.unit.keys)
    allowed = (corpus.id for corpus, _ in stored if granted.reaches(corpus.id, level))
    ids = tuple(islice(allowed, CORPORA_MAX + 1))
    if len(ids) > CORPORA_MAX:
        message = f"there are over {CORPORA_MAX} corpora, more than one query searches: name those to search"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="corpus_ids")
    return ids


def _listed(
    library: Library, shelves: Iterable[Shelf], question: Question
) -> Iterator[tuple[Shelf, NodeId, float | None]]:
    for shelf in shelves:
        for node in Selection(library, shelf, question.filters).nodes(question.level):
            yield shelf, node, None


def _ranked(
    library: Library, shelves: Iterable[Shelf], question: Question, sought: Sought
) -> Iterator[tuple[Shelf, NodeId, float | None]]:
    """Everything the filters allow, by cosine; scores are rounded to 1e-6 and ties go to the smaller id."""
    rankings = [_ranking(library, shelf, question, sought) for shelf in shelves]
    return heapq.merge(*rankings, key=lambda one: (-(one[2] or 0.0), one[1]))


def _ranking(
    library: Library, shelf: Shelf, question: Question, sought: Sought
) -> Iterator[tuple[Shelf, NodeId, float | None]]:
    index = _index(library, shelf, question.level)
    if shelf.embeddings is None or not len(index):
        return
    vector = sought.of(shelf.corpus.id, shelf.embeddings.current.model)
    allowed = Selection(library, shelf, question.filters).allowed(question.level)
    for node, score in index.ranking(vector, allowed):
        yield shelf, node, score


def _index(library: Library, shelf: Shelf, level: Level) -> VectorIndex[NodeId]:
    indexes = library.vectors if level is Level.CHUNK else library.sections
    return indexes.at(shelf.corpus.number, shelf.view)

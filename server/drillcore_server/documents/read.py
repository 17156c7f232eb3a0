"""GetDocument and ListDocuments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.model import Document, assembled
from drillcore_server.hierarchy.reader import check_documents
from drillcore_server.hierarchy.store import DOCUMENT, HierarchyReader
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, BoundedScan, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput, Missing, NotReady
from drillcore_server.kernel.pages import Page, PageLimit, fill_page, make_token, page_size, read_together, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, erased
from drillcore_server.storage.ids import CorpusId, DocumentId, Level, Revision, TenantId


@dataclass(frozen=True, slots=True)
class DocumentFound:
    document: Document
    text: str
    revision: Revision


def get_document(
    reads: CorpusReads,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    document: DocumentId,
    as_of: AsOf,
    with_text: bool,
) -> DocumentFound:
    """Returns the document, with its original characters if `with_text` is set.

    Raises `Refused`: DOCUMENT_NOT_FOUND, TEXT_INCOMPLETE if its raws have gaps, TOO_LARGE if the text is too long.
    """

    def work(tr: Reader, granted: InTenant, trail: Trail) -> DocumentFound:
        trail.touch_documents([document])
        view = reads.at(tr, granted, trail, corpus, as_of)
        check_documents(granted, corpus)
        if with_text:
            granted.check_level(corpus, Level.RAW)
        found = HierarchyReader(view).document(document)
        if found is None:
            if view.was_erased(view.keys.document(document)):
                raise erased()
            raise Missing(Reason.DOCUMENT_NOT_FOUND, f"there is no document {document}")
        trail.sources.add((view.corpus.number, found.source))
        text = ""
        if with_text:
            trail.levels.add(Level.RAW)
            text = _text(view, found, reads.unit.page_bytes_max)
        return DocumentFound(found, text, view.revision)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


_CHUNKS_AT_ONCE: Final = 250


def _text(view: CorpusAtRevision, document: Document, bytes_max: int) -> str:
    if document.characters <= bytes_max:
        chunks = read_together(document.chunks, _CHUNKS_AT_ONCE, HierarchyReader(view).chunks_with_raws)
        text = assembled([raw for chunk in chunks if chunk is not None for raw in chunk.page.raws])
        if text is None or len(text) != document.characters:
            message = "the document's raws do not cover its whole text: query the raws to read the parts that are here"
            raise NotReady(Reason.TEXT_INCOMPLETE, message, field="with_text")
        if len(text.encode()) <= bytes_max:
            return text
    message = "the text is too large for one answer: query the document's raws, which come in pages"
    raise BadInput(Reason.TOO_LARGE, message, field="with_text")


_ID_BYTES: Final = 16
_OVERHEAD_BYTES: Final = 1_000
"""A generous guess for the ids, times, hashes and numbers of a document."""


def list_documents(
    reads: CorpusReads, call: Call, *, tenant: TenantId | None, corpus: CorpusId, as_of: AsOf, size: int, token: str
) -> tuple[Page[Document], Revision]:
    """Returns a page of documents by id, and its revision. Later pages are of the revision of the first page.

    A page may be short or empty although more follow, if the store has many documents that this revision lacks.
    """
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    listing = f"documents of {corpus}"
    cursor = read_token(listing, token)
    after = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), DocumentId(UUID(bytes=cursor[6:]))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> tuple[Page[Document], Revision]:
        view = reads.at(tr, granted, trail, corpus, as_of)
        check_documents(granted, corpus)
        scan = BoundedScan(view, view.keys.documents(after))
        documents = (DOCUMENT.decode(entry.value) for entry in scan.entries())
        items, more = fill_page(((found, _size_bytes(found)) for found in documents), limit)
        trail.touch_documents(document.id for document in items)
        last = items[-1].id.bytes if more else (scan.cut_at or b"")[-_ID_BYTES:]
        token = make_token(listing, view.revision.to_bytes(6, "big") + last) if last else ""
        return Page(items, token), view.revision

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _size_bytes(document: Document) -> int:
    """Estimates the size of a document in an answer."""
    texts = [document.source, document.title, *document.preprocessing, *document.metadata, *document.metadata.values()]
    return _OVERHEAD_BYTES + 4 * sum(map(len, texts))

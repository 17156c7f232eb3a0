"""GetDocument."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call, erased
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput, Missing, NotReady
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, DocumentId, Revision, TenantId
from drillcore_server.domain.nodes import Document, Level, assembled


@dataclass(frozen=True, slots=True)
class DocumentFound:
    document: Document
    text: str
    revision: Revision


def get_document(
    library: Library,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    document: DocumentId,
    as_of: AsOf,
    with_text: bool,
) -> DocumentFound:
    """The document, with its original characters if asked for."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> DocumentFound:
        trail.touch_documents([document])
        shelf = library.shelf(tr, granted, trail, corpus, as_of)
        check_documents(granted, corpus)
        if with_text:
            granted.check_level(corpus, Level.RAW)
        found = shelf.view.document(document)
        if found is None:
            if shelf.view.was_erased(shelf.view.keys.document(document)):
                raise erased()
            raise Missing(Reason.DOCUMENT_NOT_FOUND, f"there is no document {document}")
        trail.sources.add((shelf.corpus.number, found.source))
        text = ""
        if with_text:
            trail.levels.add(Level.RAW)
            text = _text(shelf, found, library.unit.page_bytes_max)
        return DocumentFound(found, text, shelf.revision)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def check_documents(granted: InTenant, corpus: CorpusId) -> None:
    """Who may read neither chunks nor raws does not get to know what the documents are."""
    if not granted.reaches(corpus, Level.RAW):
        granted.check_level(corpus, Level.CHUNK)


def _text(shelf: Shelf, document: Document, bytes_max: int) -> str:
    if document.characters <= bytes_max:
        pages = [shelf.view.raws(chunk) for chunk in document.chunks]
        text = assembled([raw for page in pages if page is not None for raw in page.raws])
        if text is None or len(text) != document.characters:
            message = "its raws do not make up its whole text: query them to read what there is"
            raise NotReady(Reason.TEXT_INCOMPLETE, message, field="with_text")
        if len(text.encode()) <= bytes_max:
            return text
    message = "the text is too large for one answer: query the document's raws, which come in pages"
    raise BadInput(Reason.TOO_LARGE, message, field="with_text")

"""GetSource."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.get_document import check_documents
from drillcore_server.commands.unit import Call, erased
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Missing
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, Revision, SourceId, TenantId
from drillcore_server.domain.sources import Source


def get_source(
    library: Library, call: Call, *, tenant: TenantId | None, corpus: CorpusId, source: SourceId, as_of: AsOf
) -> tuple[Source, Revision]:
    """What the registry has of a source, and the revision it is of."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> tuple[Source, Revision]:
        shelf = library.shelf(tr, granted, trail, corpus, as_of)
        check_documents(granted, corpus)
        found = shelf.view.source(source)
        if found is None and shelf.view.was_erased(shelf.view.keys.source(library.sealed.hashed(source))):
            raise erased()
        if found is None:
            raise Missing(Reason.SOURCE_NOT_FOUND, "the corpus has no such source")
        trail.sources.add((shelf.corpus.number, source))
        if found.document is not None:
            trail.touch_documents([found.document])
        return found, shelf.revision

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)

"""GetMigration."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.migrating import Progress
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.store import embeddings


def get_migration(library: Library, call: Call, *, tenant: TenantId | None, corpus: CorpusId) -> Progress:
    """The model of a corpus, and how far a change to another one is, or was."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Progress:
        shelf = library.shelf(tr, granted, trail, corpus, AsOf())
        return Progress(shelf.embeddings, embeddings.migration(tr, shelf.view.keys), shelf.revision)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)

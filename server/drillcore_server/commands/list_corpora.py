"""ListCorpora."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import SeenCorpus
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.pages import Page, PageLimit, fill_page, make_page, page_size, read_id_token


def list_corpora(unit: Unit, call: Call, *, tenant: TenantId | None, size: int, token: str) -> Page[SeenCorpus]:
    """The corpora that the caller may see, by id: the tenant's own, and those that it may read."""
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Page[SeenCorpus]:
        listing = f"corpora of {granted.tenant}"
        after = read_id_token(listing, token)
        found = granted.corpora(tr, unit.keys, None if after is None else CorpusId(after))
        seen = ((SeenCorpus(corpus, granted.is_shared(corpus)), size) for corpus, size in found)
        page = make_page(listing, *fill_page(seen, limit))
        for corpus in page.items:
            trail.touch_corpus(corpus.id)
        return page

    return unit.read(call, access.in_tenant(tenant, Permission.READ, Permission.MANAGE_CORPORA), work)

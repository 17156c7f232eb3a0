"""ListCorpora."""

from __future__ import annotations

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.pages import Page, PageLimit, fill_page, make_page, page_size, read_id_token
from drillcore_server.store.corpora import CORPORA


def list_corpora(unit: Unit, call: Call, *, tenant: TenantId | None, size: int, token: str) -> Page[Corpus]:
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Transaction, granted: TenantId) -> Page[Corpus]:
        listing = f"corpora of {granted}"
        after = read_id_token(listing, token)
        keys = unit.keys.corpora(granted, None if after is None else CorpusId(after))
        return make_page(listing, *fill_page(CORPORA.scan(tr, keys), limit))

    return unit.read(call, access.in_tenant(tenant), work)

"""ListErasures."""

from __future__ import annotations

from itertools import islice

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.erasures import Erasure
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.pages import Page, make_token, page_size, read_token
from drillcore_server.store import erasures


def list_erasures(
    library: Library, call: Call, *, tenant: TenantId | None, corpus: CorpusId, size: int, token: str
) -> Page[Erasure]:
    """What was erased from a corpus, oldest first: that, by whom and when, never what it was."""
    wanted, listing = page_size(size), f"erasures of {corpus}"
    cursor = read_token(listing, token)
    after = int.from_bytes(cursor, "big") if cursor else 0

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Page[Erasure]:
        shelf = library.shelf(tr, granted, trail, corpus, AsOf())
        found = list(islice(erasures.of_corpus(tr, shelf.view.keys, after), wanted + 1))
        trail.detail["erasures"] = [str(one.id) for one in found[:wanted]]
        more = make_token(listing, found[wanted - 1].number.to_bytes(4, "big")) if len(found) > wanted else ""
        return Page(found[:wanted], more)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ, Permission.AUDIT), work)

"""ListSignatures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.audit.journal import log_of
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted, InTenant, Rule
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.pages import Page, PageLimit, make_token, page_size, read_id_token
from drillcore_server.domain.signatures import Signature, Target
from drillcore_server.store import signatures

CROSSED_MAX: Final = 5_000
"""Signatures looked at for one page: a page may be short, where the caller may see few of them."""


@dataclass(frozen=True, slots=True)
class Listing:
    tenant: TenantId | None
    target: Target | None
    """None: all that the caller may see."""
    size: int
    token: str

    @property
    def name(self) -> str:
        return f"signatures of {self.target or 'all'}"


def list_signatures(library: Library, call: Call, listing: Listing) -> Page[Signature]:
    """Signatures, oldest first. Those of what the caller may not see are not there."""
    after = read_id_token(listing.name, listing.token)
    limit = PageLimit(page_size(listing.size), library.unit.page_bytes_max)

    def work(tr: Reader, granted: Granted, trail: Trail) -> Page[Signature]:
        found = _found(library, tr, log_of(granted.tenant), listing.target, after)
        page = _page(listing.name, found, granted, limit)
        if listing.target is not None:
            trail.detail["target"] = {"kind": listing.target.kind.word, "id": str(listing.target.id)}
        trail.detail["signatures"] = [str(one.id) for one in page.items]
        return Page([signatures.with_salt(library.keyring, one) for one in page.items], page.next_token)

    return library.unit.read(call, _rule(call, listing.tenant), work)


def _rule(call: Call, tenant: TenantId | None) -> Rule[Granted]:
    if call.principal.tenant is None and tenant is None:
        return access.operator
    return access.in_tenant(tenant, Permission.READ, Permission.AUDIT)


def _found(
    library: Library, tr: Reader, tenant: UUID, target: Target | None, after: UUID | None
) -> Iterator[Signature]:
    keys = library.unit.keys
    if target is None:
        return signatures.scan(tr, keys, tenant, after)
    ids = signatures.ids_of(tr, keys, tenant, target)
    return signatures.by_ids(tr, keys, tenant, (one for one in ids if after is None or one > after))


def _page(name: str, found: Iterator[Signature], granted: Granted, limit: PageLimit) -> Page[Signature]:
    items: list[Signature] = []
    size_bytes, last = 0, None
    for one in islice(found, CROSSED_MAX):
        size_bytes += 2 * len(one.manifestation)
        if len(items) == limit.items or (items and size_bytes > limit.bytes):
            return Page(items, make_token(name, items[-1].id.bytes))
        last = one
        if _may_see(granted, one):
            items.append(one)
    more = last is not None and next(found, None) is not None
    return Page(items, make_token(name, last.id.bytes) if more and last is not None else "")


def _may_see(granted: Granted, signature: Signature) -> bool:
    """Those of a corpus with the corpus; those of the audit log and its reviews, who may audit the whole tenant."""
    if not isinstance(granted, InTenant):
        return True
    if signature.corpus is not None:
        return granted.reaches(signature.corpus)
    auditing = (one for one in granted.grants if one.allows(Permission.AUDIT, granted.tenant))
    return any(one.corpus is None and not one.levels for one in auditing)

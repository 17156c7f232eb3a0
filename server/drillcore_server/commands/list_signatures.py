"""ListSignatures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.audit.journal import log_of
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted, InTenant, Rule
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import FactId, NodeId, TenantId
from drillcore_server.domain.pages import Page, PageLimit, make_token, page_size, read_id_token
from drillcore_server.domain.signatures import Signature, Target, TargetKind
from drillcore_server.store import facts, revisions, signatures
from drillcore_server.store.foreign_signatures import of_target
from drillcore_server.store.hierarchy import CorpusView, locate
from drillcore_server.store.keyspace import Keyspace

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


class Listed(NamedTuple):
    signature: Signature
    is_foreign: bool = False
    """Whether it was made on another server, and came with a core."""

    @property
    def id(self) -> UUID:
        return self.signature.id


def list_signatures(library: Library, call: Call, listing: Listing) -> Page[Listed]:
    """Signatures, oldest first. Those of what the caller may not see are not there."""
    after = read_id_token(listing.name, listing.token)
    limit = PageLimit(page_size(listing.size), library.unit.page_bytes_max)

    def work(tr: Reader, granted: Granted, trail: Trail) -> Page[Listed]:
        found = _found(library, tr, granted, listing.target, after)
        page = _page(listing.name, found, granted, limit)
        if listing.target is not None:
            trail.detail["target"] = {"kind": listing.target.kind.word, "id": str(listing.target.id)}
        trail.detail["signatures"] = [str(one.id) for one in page.items]
        return Page([_shown(library, one) for one in page.items], page.next_token)

    return library.unit.read(call, _rule(call, listing.tenant), work)


def _rule(call: Call, tenant: TenantId | None) -> Rule[Granted]:
    if call.principal.tenant is None and tenant is None:
        return access.operator
    return access.in_tenant(tenant, Permission.READ, Permission.AUDIT)


def _shown(library: Library, one: Listed) -> Listed:
    """A foreign one has its salt with it."""
    return one if one.is_foreign else Listed(signatures.with_salt(library.keyring, one.signature))


def _found(
    library: Library, tr: Reader, granted: Granted, target: Target | None, after: UUID | None
) -> Iterator[Listed]:
    keys, log = library.unit.keys, log_of(granted.tenant)
    if target is None:
        return map(Listed, signatures.scan(tr, keys, log, after))
    foreign = {one.id: one for one in _foreign(library, tr, granted, target)}
    ids = sorted({*signatures.ids_of(tr, keys, log, target), *foreign})
    left = (one for one in ids if after is None or one > after)
    return (
        Listed(foreign[one], is_foreign=True) if one in foreign else Listed(_own(tr, keys, log, one)) for one in left
    )


def _own(tr: Reader, keys: Keyspace, log: UUID, signature: UUID) -> Signature:
    (found,) = signatures.by_ids(tr, keys, log, [signature])
    return found


def _foreign(library: Library, tr: Reader, granted: Granted, target: Target) -> list[Signature]:
    """Those that came with the corpus that the target is in, if it is the tenant's own, and the caller's to read."""
    if not isinstance(granted, InTenant):
        return []
    keys, tenant = library.unit.keys, granted.tenant
    if target.kind is TargetKind.FACT:
        number = facts.locate(tr, keys, tenant, FactId(target.id))
    else:
        located = locate(tr, keys, tenant, NodeId(target.id)) if target.kind is TargetKind.NODE else None
        number = None if located is None else located.corpus
    corpus = None if number is None else library.numbered(tr, granted, tenant, number)
    if corpus is None or not granted.reaches(corpus.id):
        return []
    of_corpus = keys.of_corpus(corpus.number)
    view = CorpusView(tr, of_corpus, library.sealed, revisions.head(tr, of_corpus))
    return of_target(view, target.kind, target.id, target.version)


def _page(name: str, found: Iterator[Listed], granted: Granted, limit: PageLimit) -> Page[Listed]:
    items: list[Listed] = []
    size_bytes, last = 0, None
    for one in islice(found, CROSSED_MAX):
        size_bytes += 2 * len(one.signature.manifestation)
        if len(items) == limit.items or (items and size_bytes > limit.bytes):
            return Page(items, make_token(name, items[-1].id.bytes))
        last = one.signature
        if one.is_foreign or _may_see(granted, last):
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

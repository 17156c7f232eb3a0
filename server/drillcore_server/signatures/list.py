"""ListSignatures: the signatures of one record, or all that the caller may see, oldest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.kernel import access, revisions
from drillcore_server.kernel.access import Granted, InTenant, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.journal import log_of
from drillcore_server.kernel.pages import Page, PageLimit, make_token, page_size, read_id_token, read_together
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.model import Signature, Target
from drillcore_server.signatures.targets import Targets
from drillcore_server.storage.ids import TenantId
from drillcore_server.storage.sealed import SealedRecords

_READ_AT_ONCE: Final = 200
"""Signatures of one record that are read together."""
SEEN_MAX: Final = 5_000
"""Signatures read for one page. A page may be short if the caller may see only few of them."""


@dataclass(frozen=True, slots=True)
class Listing:
    tenant: TenantId | None
    target: Target | None
    """None: signatures of everything that the caller may see."""
    size: int
    token: str

    @property
    def name(self) -> str:
        return f"signatures of {'all' if self.target is None else self.target.document()}"


class Listed(NamedTuple):
    signature: Signature
    is_foreign: bool = False
    """Whether it was made on another server and came with a core."""

    @property
    def id(self) -> UUID:
        return self.signature.id


@dataclass(frozen=True, slots=True)
class SignatureReader:
    unit: Unit
    sealed: SealedRecords
    targets: Targets

    def list_signatures(self, call: Call, listing: Listing) -> Page[Listed]:
        """Signatures, oldest first, without those that the caller may not see. May be re-run."""
        after = read_id_token(listing.name, listing.token)
        limit = PageLimit(page_size(listing.size), self.unit.page_bytes_max)

        def work(tr: Reader, granted: Granted, trail: Trail) -> Page[Listed]:
            page = _page(listing.name, self._found(tr, granted, listing.target, after), granted, limit)
            if listing.target is not None:
                trail.detail["target"] = {"kind": listing.target.kind.word, "id": str(listing.target.id)}
            trail.detail["signatures"] = [str(listed.id) for listed in page.items]
            return Page(list(map(self._with_salt, page.items)), page.next_token)

        return self.unit.read(call, _rule(call, listing.tenant), work)

    def _with_salt(self, listed: Listed) -> Listed:
        """A foreign signature is stored with its salt."""
        return listed if listed.is_foreign else Listed(self.targets.with_salt(listed.signature))

    def _found(self, tr: Reader, granted: Granted, target: Target | None, after: UUID | None) -> Iterator[Listed]:
        keys, log = self.unit.keys, log_of(granted.tenant)
        if target is None:
            yield from map(Listed, signatures.scan(tr, keys, log, after))
            return
        foreign = {signature.id: signature for signature in self._foreign(tr, granted, target)}
        every = sorted({*signatures.ids_of(tr, keys, log, target), *foreign})

        def read(ids: list[UUID]) -> Iterator[Listed]:
            own = signatures.by_id(tr, keys, log, [id_ for id_ in ids if id_ not in foreign])
            return (Listed(own[id_]) if id_ in own else Listed(foreign[id_], is_foreign=True) for id_ in ids)

        yield from read_together((id_ for id_ in every if after is None or id_ > after), _READ_AT_ONCE, read)

    def _foreign(self, tr: Reader, granted: Granted, target: Target) -> list[Signature]:
        """Signatures that came with the target's corpus, if that is the tenant's own and the caller may read it."""
        corpus = self.targets.corpus_of(tr, granted, target) if isinstance(granted, InTenant) else None
        if corpus is None or not isinstance(granted, InTenant) or not granted.reaches(corpus.id):
            return []
        keys = self.unit.keys.of_corpus(corpus.number)
        return signatures.foreign_signatures(tr, keys, self.sealed, revisions.head(tr, keys), target)


def _rule(call: Call, tenant: TenantId | None) -> Rule[Granted]:
    if call.principal.tenant is None and tenant is None:
        return access.operator
    return access.in_tenant(tenant, Permission.READ, Permission.AUDIT)


def _page(name: str, found: Iterator[Listed], granted: Granted, limit: PageLimit) -> Page[Listed]:
    items: list[Listed] = []
    size_bytes, last = 0, None
    for listed in islice(found, SEEN_MAX):
        size_bytes += 2 * len(listed.signature.manifestation)
        if len(items) == limit.items or (items and size_bytes > limit.bytes):
            return Page(items, make_token(name, items[-1].id.bytes))
        last = listed
        if listed.is_foreign or _may_see(granted, listed.signature):
            items.append(listed)
    more = last is not None and next(found, None) is not None
    return Page(items, make_token(name, last.id.bytes) if more and last is not None else "")


def _may_see(granted: Granted, signature: Signature) -> bool:
    """Readers of a corpus see its signatures. Those of the audit log and its reviews need AUDIT on the tenant."""
    if not isinstance(granted, InTenant):
        return True
    if signature.corpus is not None:
        return granted.reaches(signature.corpus)
    audit_grants = (grant for grant in granted.grants if grant.allows(Permission.AUDIT, granted.tenant))
    return any(grant.corpus is None and not grant.levels for grant in audit_grants)

"""Who is calling, what the caller may do, and in which regions. Rules of access deny what they do not allow.

A rule is checked inside the transaction of the call that it guards. It reads the grants and the session of the account
there, with a conflict, so whatever was revoked before the call's commit is revoked for the call.
"""

from __future__ import annotations

import enum
import heapq
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby, islice
from typing import Final, Self, TypeVar

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel import corpus_store
from drillcore_server.kernel import session_store as sessions
from drillcore_server.kernel.account_model import Account, AccountKind, Grant, Permission, Role
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.corpus_store import CORPORA, CORPUS, get_tenant
from drillcore_server.kernel.errors import BadInput, Denied, Missing
from drillcore_server.kernel.pages import Listed, read_together
from drillcore_server.storage.ids import AccountId, CorpusId, Level, PrincipalId, TenantId
from drillcore_server.storage.keyspace import Keyspace


class PrincipalKind(enum.Enum):
    PERSON = "person"
    SERVICE = "service"
    SERVER = "server"
    """The server itself, in its background work."""
    NOBODY = "nobody"
    """Not authenticated. May only log in."""


class Proof(enum.Enum):
    """How a caller proved its identity."""

    NONE = "none"
    STATIC_TOKEN = "static token"  # noqa: S105 - a word for the record
    PASSWORD = "password"  # noqa: S105 - likewise
    TOKEN = "token"  # noqa: S105 - likewise
    SESSION = "session"
    CERTIFICATE = "certificate"
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class Principal:
    id: PrincipalId
    """The id of an account, or a name from the settings file."""
    tenant: TenantId | None
    """The tenant that the caller belongs to. None: an operator of the server."""
    kind: PrincipalKind = PrincipalKind.SERVICE
    proof: Proof = Proof.STATIC_TOKEN
    grants: tuple[Grant, ...] = ()
    """The grants of a caller from the settings file. Those of an account are read in the transaction of each call."""
    account: AccountId | None = None
    session: bytes | None = None
    """SHA-256 of the bearer token, if each transaction must check it."""
    login: str = ""
    certificate: bytes | None = None
    """SHA-256 of the client certificate, if it identified the account."""
    subject: tuple[str, str] | None = None
    """Issuer and subject of the OIDC token, if it identified the account."""


def principal_of(account: Account, proof: Proof) -> Principal:
    """A caller who uses this account, without what each transaction checks."""
    kind = PrincipalKind.PERSON if account.kind is AccountKind.PERSON else PrincipalKind.SERVICE
    return Principal(PrincipalId(str(account.id)), account.tenant_id, kind, proof, (), account.id, login=account.login)


NOBODY: Final = Principal(PrincipalId(""), None, PrincipalKind.NOBODY, Proof.NONE)
SERVER: Final = Principal(PrincipalId("drillcore"), None, PrincipalKind.SERVER, Proof.NONE)


REGIONS_MAX: Final = 100
SHARED_NAMES_MAX: Final = 20_000
"""With more corpora shared with its tenant than this, a call must name a shared corpus by its id, not by its name."""
_SHARED_AT_ONCE: Final = 100
"""How many shared corpora are read together."""
_REGION: Final = re.compile("[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def is_region(text: str) -> bool:
    return _REGION.fullmatch(text) is not None


def checked_region(region: str, field: str = "region") -> str:
    if not is_region(region):
        message = f"{field} is not a region: 1 to 63 of the characters a-z, 0-9 and -, such as eu-west-1"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field=field)
    return region


def checked_regions(regions: Iterable[str], field: str) -> tuple[str, ...]:
    """The regions, checked, sorted and without duplicates."""
    checked = tuple(sorted({checked_region(region, field) for region in regions}))
    if len(checked) > REGIONS_MAX:
        raise BadInput(Reason.TOO_LARGE, f"over {REGIONS_MAX} regions", field=field)
    return checked


@dataclass(frozen=True, slots=True)
class Residency:
    """The regions that a call may touch. An empty tuple allows every region, and corpora without one."""

    server: tuple[str, ...] = ()
    tenant: tuple[str, ...] = ()
    asked: str = ""
    """The region that the caller bound this call to."""

    def allows(self, region: str) -> bool:
        return self._excluding(region) is None

    def check(self, region: str) -> None:
        """Raises `Denied` if a corpus of this region may not be touched. "" stands for a corpus without a region."""
        excluding = self._excluding(region)
        if excluding is not None:
            where = f"in the region {region}" if region else "in no region"
            raise Denied(Reason.REGION_NOT_ALLOWED, f"the corpus is {where}, which {excluding}", region=region)

    def _excluding(self, region: str) -> str | None:
        """Says who does not allow the region; None if it is allowed."""
        asked = (self.asked,) if self.asked else ()
        bounds = (
            (self.server, "this server does not serve (server.regions in its settings)"),
            (self.tenant, "the tenant does not allow (its allowed regions)"),
            (asked, "is not the one that this call is bound to (--residency, or client.residency in the settings)"),
        )
        return next((words for allowed, words in bounds if allowed and region not in allowed), None)


ANYWHERE: Final = Residency()
NO_CREDENTIALS: Final = (
    "no token was sent: give --token-file or run `drillcore login`, set client.token_file in the settings, or send the "
    "header 'authorization: Bearer TOKEN'"
)
NAME_THE_TENANT: Final = (
    "name the tenant to act in: tenant_id in the request, --tenant on the command line, or client.tenant_id in the "
    "settings"
)


@dataclass(frozen=True, slots=True)
class Granted:
    """The caller, and the tenant to act in if there is one."""

    principal: Principal
    tenant: TenantId | None

    def within(self, server: tuple[str, ...], asked: str) -> Self:  # noqa: ARG002 - regions matter only for corpora
        """The same, limited to the regions that the server serves and the region that the call is bound to."""
        return self


@dataclass(frozen=True, slots=True)
class InTenant(Granted):
    """The tenant to act in, and the caller's grants there that include one of the permissions asked for.

    The only way to a corpus. It gives only corpora that are granted or shared with the tenant, in an allowed region.
    """

    tenant: TenantId
    permissions: tuple[Permission, ...]
    grants: tuple[Grant, ...]
    residency: Residency = ANYWHERE

    def within(self, server: tuple[str, ...], asked: str) -> Self:
        return replace(self, residency=replace(self.residency, server=server, asked=asked))

    def reaches(self, corpus: CorpusId, level: Level | None = None) -> bool:
        """Whether a corpus is granted at this level, or at any level if none is given."""
        return any(
            grant.covers(corpus, level) if level is not None else grant.corpus in {None, corpus}
            for grant in self.grants
        )

    def corpus(self, tr: Reader, keys: Keyspace, corpus: CorpusId, *, entering: str = "") -> Corpus:
        """The tenant's own corpus of this id, or one that is shared with it. Raises `Missing` if none is granted.

        Raises `Denied` if the call would change a shared corpus, or may not touch its region. `entering` is the region
        that a corpus without one is about to get.
        """
        found = self.find(tr, keys, corpus)
        if found is None:
            raise Missing(Reason.CORPUS_NOT_FOUND, f"there is no corpus {corpus}")
        return self.admitted(found, entering=entering)

    def admitted(self, found: Corpus, *, entering: str = "") -> Corpus:
        """The corpus that `find` gave, if the call may use it. Raises `Denied` as `corpus` does."""
        if self.is_shared(found) and Permission.READ not in self.permissions:
            raise Denied(Reason.PERMISSION_DENIED, "this corpus is shared with your tenant to read, and nothing else")
        self.residency.check(found.region or entering)
        return found

    def is_shared(self, corpus: Corpus) -> bool:
        """Whether the corpus belongs to another tenant."""
        return corpus.tenant_id != self.tenant

    def corpora(self, tr: Reader, keys: Keyspace, after: CorpusId | None = None) -> Iterator[tuple[Corpus, int]]:
        """Every corpus that `corpus` would give, in the order of ids, each with the size of its record in bytes."""
        found = self.corpora_looked_at(tr, keys, after)
        return ((corpus, size_bytes) for _, corpus, size_bytes in found if corpus is not None)

    def corpora_looked_at(self, tr: Reader, keys: Keyspace, after: CorpusId | None = None) -> Iterator[Listed[Corpus]]:
        """Same as `corpora`, also with the ids of those it leaves out, for a listing that stops after so many."""
        own = CORPORA.stored(tr, keys.corpora(self.tenant, after))
        merged = heapq.merge(own, self._shared(tr, keys, after), key=lambda found: found.id)
        for id_, group in groupby(merged, key=lambda found: found.id):
            same = list(group)
            corpus = next((found.record for found in same if found.record is not None), None)
            gives = corpus is not None and self.reaches(corpus.id) and self.residency.allows(corpus.region)
            yield Listed(id_, corpus if gives else None, sum(found.size_bytes for found in same))

    def owners(self, tr: Reader, keys: Keyspace) -> Iterator[TenantId]:
        """The tenants whose corpora can be read here: this one first, then those that share some with it."""
        yield self.tenant
        seen = {self.tenant}
        for corpus, owner in corpus_store.shared_with(tr, keys, self.tenant):
            if owner not in seen and self._may_read(corpus):
                seen.add(owner)
                yield owner

    def find(self, tr: Reader, keys: Keyspace, corpus: CorpusId) -> Corpus | None:
        """The corpus that this id means in this tenant, whatever the call's permissions and regions.

        None if there is none.
        """
        own = corpus_store.find(tr, keys, self.tenant, corpus) if self.reaches(corpus) else None
        if own is not None or not self._may_read(corpus):
            return own
        owner = corpus_store.owner_of(tr, keys, self.tenant, corpus)
        return None if owner is None else corpus_store.find(tr, keys, owner, corpus)

    def find_many(self, tr: Reader, keys: Keyspace, corpora: Iterable[CorpusId]) -> dict[CorpusId, Corpus | None]:
        """Same as `find`, for several corpora. Takes one round trip, and two more if some are not the tenant's own."""
        ids = sorted(set(corpora))
        own = tr.get_many([keys.corpus(self.tenant, id_) for id_ in ids])
        others = [id_ for id_, stored in zip(ids, own, strict=True) if stored is None]
        tr.get_many([key for id_ in others for key in corpus_store.owner_keys(keys, self.tenant, id_)])
        owners = [(id_, corpus_store.owner_of(tr, keys, self.tenant, id_)) for id_ in others]
        tr.get_many([keys.corpus(owner, id_) for id_, owner in owners if owner is not None])
        return {id_: self.find(tr, keys, id_) for id_ in ids}

    def named(self, tr: Reader, keys: Keyspace, name: str) -> CorpusId | None:
        """The tenant's own corpus of this name, or the first corpus of this name that is shared with the tenant.

        Raises `BadInput` if too many corpora are shared with the tenant to look for a name among them.
        """
        own = corpus_store.find_by_name(tr, keys, self.tenant, name)
        if own is not None and self.reaches(own):
            return own
        shared = list(islice(corpus_store.shared_with(tr, keys, self.tenant), SHARED_NAMES_MAX + 1))
        if len(shared) > SHARED_NAMES_MAX:
            message = f"over {SHARED_NAMES_MAX} corpora are shared with the tenant: give the id of the one you mean"
            raise BadInput(Reason.TOO_LARGE, message, field="name")
        owners = sorted({owner for _, owner in shared})
        there = tr.get_many([keys.corpus_name(owner, name) for owner in owners])
        of_that_name = {(owner, stored) for owner, stored in zip(owners, there, strict=True) if stored is not None}
        ids = [corpus for corpus, owner in shared if (owner, corpus.bytes) in of_that_name]
        found = self.find_many(tr, keys, ids)
        return next((id_ for id_ in ids if self._is_shared_as(found[id_], name)), None)

    def _is_shared_as(self, corpus: Corpus | None, name: str) -> bool:
        if corpus is None or corpus.name != name:
            return False
        return self.is_shared(corpus) and self.residency.allows(corpus.region)

    def _shared(self, tr: Reader, keys: Keyspace, after: CorpusId | None) -> Iterator[Listed[Corpus]]:
        def read(batch: list[tuple[CorpusId, TenantId]]) -> Iterator[Listed[Corpus]]:
            allowed = [(corpus, owner) for corpus, owner in batch if self._may_read(corpus)]
            stored = CORPUS.read_many(tr, [keys.corpus(owner, corpus) for corpus, owner in allowed])
            found = dict(zip(allowed, stored, strict=True))
            return (_listed(shared[0], found.get(shared)) for shared in batch)

        return read_together(corpus_store.shared_with(tr, keys, self.tenant, after), _SHARED_AT_ONCE, read)

    def _may_read(self, corpus: CorpusId) -> bool:
        """Whether one of the grants allows reading the corpus."""
        return any(
            grant.allows(Permission.READ, self.tenant) and grant.corpus in {None, corpus} for grant in self.grants
        )

    def check_level(self, corpus: CorpusId, *levels: Level) -> None:
        for level in levels:
            if not self.reaches(corpus, level):
                what = f"the level {level.word} of this corpus"
                raise _denied(self.permissions, what)

    def check_everything(self) -> None:
        """Raises `Denied` unless a grant covers the whole tenant: one for some corpora or levels is not enough."""
        if not any(grant.corpus is None and not grant.levels for grant in self.grants):
            raise _denied(self.permissions, "the whole tenant")


def _listed(id_: CorpusId, stored: Corpus | None) -> Listed[Corpus]:
    if stored is None:
        return Listed(id_, None, 0)
    return Listed(id_, stored if stored.deleted_at is None else None, len(CORPUS.encode(stored)))


G_co = TypeVar("G_co", bound=Granted, covariant=True)
Rule = Callable[[Reader, Keyspace, Principal, datetime], G_co]
"""Returns what the caller is granted at a time. Raises `Refused` if that is nothing."""


def anyone(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
    """Any authenticated caller."""
    grants_of(tr, keys, principal, now)
    return Granted(principal, principal.tenant)


def nobody(_tr: Reader, _keys: Keyspace, principal: Principal, _now: datetime) -> Granted:
    """Any caller, authenticated or not. Only for logging in."""
    return Granted(principal, principal.tenant)


def operator(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
    """An operator of the server, who belongs to no tenant."""
    grants = grants_of(tr, keys, principal, now)
    if principal.tenant is not None or not any(grant.allows(Permission.OPERATE, None) for grant in grants):
        raise Denied(Reason.PERMISSION_DENIED, "only an operator may do this")
    return Granted(principal, None)


def in_tenant(asked: TenantId | None, *permissions: Permission) -> Rule[InTenant]:
    """The caller's own tenant, or the one that an operator names. Another tenant looks like one that never existed.

    One of the permissions is enough.
    """

    def rule(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> InTenant:
        grants = grants_of(tr, keys, principal, now)
        if principal.tenant is not None and asked not in {None, principal.tenant}:
            raise Missing(Reason.TENANT_NOT_FOUND, f"there is no tenant {asked}")
        tenant = principal.tenant or asked
        if tenant is None:
            raise BadInput(Reason.TENANT_REQUIRED, NAME_THE_TENANT, field="tenant_id")
        allowing = tuple(
            grant for grant in grants if any(grant.allows(permission, tenant) for permission in permissions)
        )
        if not allowing:
            raise _denied(permissions)
        regions = get_tenant(tr, keys, tenant).allowed_regions
        return InTenant(principal, tenant, permissions, allowing, Residency(tenant=regions))

    return rule


def as_server(tenant: TenantId | None) -> Rule[Granted]:
    """The server itself, in its background work."""

    def rule(_tr: Reader, _keys: Keyspace, principal: Principal, _now: datetime) -> Granted:
        assert principal.kind is PrincipalKind.SERVER
        return Granted(principal, tenant)

    return rule


def server_in(tenant: TenantId) -> Rule[InTenant]:
    """The server itself, when it changes a corpus."""

    def rule(tr: Reader, keys: Keyspace, principal: Principal, _now: datetime) -> InTenant:
        assert principal.kind is PrincipalKind.SERVER
        get_tenant(tr, keys, tenant)  # the tenant's allowed regions bind callers; the server works in all regions
        return InTenant(principal, tenant, (Permission.WRITE,), (Grant(Role.WRITER, tenant),))

    return rule


def _denied(permissions: tuple[Permission, ...], what: str = "") -> Denied:
    wanted = " or ".join(permission.value for permission in permissions)
    return Denied(Reason.PERMISSION_DENIED, f"no role of yours may {wanted} {what}".rstrip())


def grants_of(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> tuple[Grant, ...]:
    """The caller's grants in all tenants. Raises `Denied` if its account was disabled or its session has ended."""
    if principal.kind is PrincipalKind.NOBODY:
        raise Denied(Reason.UNAUTHENTICATED, NO_CREDENTIALS)
    if principal.account is None:
        return principal.grants
    if principal.session is not None:
        session = sessions.find_session(tr, keys, principal.session)
        if session is None or session.is_over(now):
            raise Denied(
                Reason.SESSION_OVER,
                "the session or token has ended; log in again with `drillcore login`, or get a new token",
            )
    account = accounts.find(tr, keys, principal.account)
    if account is None or account.disabled:
        raise Denied(Reason.ACCOUNT_DISABLED, "the account is disabled")
    _check_binding(principal, account)
    return account.grants


def _check_binding(principal: Principal, account: Account) -> None:
    """The certificate or subject may have been taken from the account since the caller was recognised."""
    if principal.certificate is not None and principal.certificate not in account.certificates:
        raise Denied(Reason.UNAUTHENTICATED, "the certificate no longer stands for an account")
    if principal.subject is not None and principal.subject != (account.oidc_issuer, account.oidc_subject):
        raise Denied(Reason.UNAUTHENTICATED, "the token's subject no longer stands for an account")


def account_manager(asked: TenantId | None, *, of_server: bool | None = None) -> Rule[Granted]:
    """Allows managing accounts: a tenant's operators manage its accounts, the server's operators those of the server.

    `of_server` None: the server's accounts if neither the caller nor the request has a tenant.
    """

    def rule(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
        if of_server or (of_server is None and asked is None and principal.tenant is None):
            if asked is not None:
                raise BadInput(Reason.INVALID_ARGUMENT, "an account of the server has no tenant", field="tenant_id")
            return operator(tr, keys, principal, now)
        granted = in_tenant(asked, Permission.OPERATE)(tr, keys, principal, now)
        granted.check_everything()
        return granted

    return rule


def account_manager_or_self(
    asked: TenantId | None, account: AccountId | None, *, of_server: bool | None = None
) -> Rule[Granted]:
    """Allows what `account_manager` allows, and the account itself."""

    def rule(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
        if account is not None and principal.account == account and asked in {None, principal.tenant}:
            return anyone(tr, keys, principal, now)
        return account_manager(asked, of_server=of_server)(tr, keys, principal, now)

    return rule

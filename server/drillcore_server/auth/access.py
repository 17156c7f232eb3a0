"""Rules of access, checked inside the transaction of the call they guard. What is not allowed is denied.

What an account is granted, and whether its session still stands, is read in that transaction, as a reason for a
conflict: whatever was revoked before the call's commit is revoked for the call.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self, TypeVar

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth.principal import Principal, PrincipalKind
from drillcore_server.domain.accounts import Account, Grant, Permission, Role
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput, Denied, Missing
from drillcore_server.domain.ids import AccountId, CorpusId, TenantId
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.regions import ANYWHERE, Residency
from drillcore_server.store import accounts, corpora, sessions, sharing, tenants
from drillcore_server.store.corpora import CORPORA, CORPUS
from drillcore_server.store.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class Granted:
    """What a rule found: who calls, and the tenant to act in if there is one."""

    principal: Principal
    tenant: TenantId | None

    def within(self, server: tuple[str, ...], asked: str) -> Self:  # noqa: ARG002 - of what is in no corpus
        """The same, bound to the regions that the server serves and the one that the call is for."""
        return self


@dataclass(frozen=True, slots=True)
class InTenant(Granted):
    """The tenant to act in, and the grants there that carry one of the permissions that were asked for.

    The one way to corpora: what is not granted, not shared with the tenant, or not where the call may be, is not got.
    """

    tenant: TenantId
    permissions: tuple[Permission, ...]
    grants: tuple[Grant, ...]
    residency: Residency = ANYWHERE

    def within(self, server: tuple[str, ...], asked: str) -> Self:
        return replace(self, residency=replace(self.residency, server=server, asked=asked))

    def reaches(self, corpus: CorpusId, level: Level | None = None) -> bool:
        """Whether a corpus is granted, at this level, or at any if none is given."""
        return any(
            one.covers(corpus, level) if level is not None else one.corpus in {None, corpus} for one in self.grants
        )

    def corpus(self, tr: Reader, keys: Keyspace, corpus: CorpusId, *, entering: str = "") -> Corpus:
        """The corpus: the tenant's own, or one that is shared with it. One that is not granted is not there.

        Raises `Denied` for a shared one if it is not to be read, and for one that is in a region where the call may not
        be. `entering` is the region that a corpus without one is about to get.
        """
        found = self.find(tr, keys, corpus)
        if found is None:
            raise Missing(Reason.CORPUS_NOT_FOUND, f"there is no corpus {corpus}")
        return self.admitted(found, entering=entering)

    def admitted(self, found: Corpus, *, entering: str = "") -> Corpus:
        """What `find` gave, if it may be used for what was asked for, here. Raises `Denied`, as `corpus` does."""
        if self.is_shared(found) and Permission.READ not in self.permissions:
            raise Denied(Reason.PERMISSION_DENIED, "this corpus is shared with your tenant to read, and nothing else")
        self.residency.check(found.region or entering)
        return found

    def is_shared(self, corpus: Corpus) -> bool:
        """Whether it is another tenant's."""
        return corpus.tenant_id != self.tenant

    def corpora(self, tr: Reader, keys: Keyspace, after: CorpusId | None = None) -> Iterator[tuple[Corpus, int]]:
        """Every corpus that `corpus` would give, by id, each with its size in bytes."""
        own = CORPORA.scan(tr, keys.corpora(self.tenant, after))
        last = None
        for corpus, size in heapq.merge(own, self._shared(tr, keys, after), key=lambda pair: pair[0].id):
            hidden = corpus.id == last
            last = corpus.id
            if not hidden and self.reaches(corpus.id) and self.residency.allows(corpus.region):
                yield corpus, size

    def owners(self, tr: Reader, keys: Keyspace) -> Iterator[TenantId]:
        """The tenants that corpora which can be read here belong to: this one first, then those who share some."""
        yield self.tenant
        seen = {self.tenant}
        for corpus, owner in sharing.shared_with(tr, keys, self.tenant):
            if owner not in seen and self._may_read(corpus):
                seen.add(owner)
                yield owner

    def find(self, tr: Reader, keys: Keyspace, corpus: CorpusId) -> Corpus | None:
        """The corpus that this id stands for here, whatever is asked for and wherever it is; None if there is none."""
        own = corpora.find(tr, keys, self.tenant, corpus) if self.reaches(corpus) else None
        if own is not None or not self._may_read(corpus):
            return own
        owner = sharing.owner_of(tr, keys, self.tenant, corpus)
        return None if owner is None else corpora.find(tr, keys, owner, corpus)

    def _shared(self, tr: Reader, keys: Keyspace, after: CorpusId | None) -> Iterator[tuple[Corpus, int]]:
        for corpus, owner in sharing.shared_with(tr, keys, self.tenant, after):
            found = corpora.find(tr, keys, owner, corpus) if self._may_read(corpus) else None
            if found is not None:
                yield found, len(CORPUS.encode(found))

    def _may_read(self, corpus: CorpusId) -> bool:
        """Whether one of the grants would let the corpus be read, whatever was asked for."""
        return any(one.allows(Permission.READ, self.tenant) and one.corpus in {None, corpus} for one in self.grants)

    def check_level(self, corpus: CorpusId, *levels: Level) -> None:
        for level in levels:
            if not self.reaches(corpus, level):
                what = f"the level {level.name.lower()} of this corpus"
                raise _denied(self.permissions, what)

    def check_everything(self) -> None:
        """For what is about the whole tenant: a grant for some corpora or levels is not enough."""
        if not any(one.corpus is None and not one.levels for one in self.grants):
            raise _denied(self.permissions, "the whole tenant")


G_co = TypeVar("G_co", bound=Granted, covariant=True)
Rule = Callable[[Reader, Keyspace, Principal, datetime], G_co]
"""What the caller is granted at a time; raises `Refused` if it is nothing."""


def anyone(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
    """Any authenticated caller."""
    grants_of(tr, keys, principal, now)
    return Granted(principal, principal.tenant)


def nobody(_tr: Reader, _keys: Keyspace, principal: Principal, _now: datetime) -> Granted:
    """Also a caller who has not proved who it is: only to log in."""
    return Granted(principal, principal.tenant)


def operator(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
    """An operator of the server, who belongs to no tenant."""
    grants = grants_of(tr, keys, principal, now)
    if principal.tenant is not None or not any(one.allows(Permission.OPERATE, None) for one in grants):
        raise Denied(Reason.PERMISSION_DENIED, "only an operator may do this")
    return Granted(principal, None)


def in_tenant(asked: TenantId | None, *permissions: Permission) -> Rule[InTenant]:
    """The tenant to act in: the caller's own, or for an operator the one named. Another's is not there.

    One of the permissions is enough.
    """

    def rule(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> InTenant:
        grants = grants_of(tr, keys, principal, now)
        if principal.tenant is not None and asked not in {None, principal.tenant}:
            raise Missing(Reason.TENANT_NOT_FOUND, f"there is no tenant {asked}")
        tenant = principal.tenant or asked
        if tenant is None:
            raise BadInput(Reason.TENANT_REQUIRED, "an operator must say which tenant to act in", field="tenant_id")
        allowing = tuple(one for one in grants if any(one.allows(permission, tenant) for permission in permissions))
        if not allowing:
            raise _denied(permissions)
        regions = tenants.get(tr, keys, tenant).allowed_regions
        return InTenant(principal, tenant, permissions, allowing, Residency(tenant=regions))

    return rule


def as_server(tenant: TenantId | None) -> Rule[Granted]:
    """The server itself, when it keeps house."""

    def rule(_tr: Reader, _keys: Keyspace, principal: Principal, _now: datetime) -> Granted:
        assert principal.kind is PrincipalKind.SERVER
        return Granted(principal, tenant)

    return rule


def server_in(tenant: TenantId) -> Rule[InTenant]:
    """The server itself, when it changes a corpus."""

    def rule(tr: Reader, keys: Keyspace, principal: Principal, _now: datetime) -> InTenant:
        assert principal.kind is PrincipalKind.SERVER
        tenants.get(tr, keys, tenant)  # which of its regions it allows is for callers: the server keeps house in all
        return InTenant(principal, tenant, (Permission.WRITE,), (Grant(Role.WRITER, tenant),))

    return rule


def _denied(permissions: tuple[Permission, ...], what: str = "") -> Denied:
    wanted = " or ".join(permission.value for permission in permissions)
    return Denied(Reason.PERMISSION_DENIED, f"no role of yours may {wanted} {what}".rstrip())


def grants_of(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> tuple[Grant, ...]:
    """What a caller is granted, in any tenant. Raises `Denied` if its account or session is not what it was."""
    if principal.kind is PrincipalKind.NOBODY:
        raise Denied(Reason.UNAUTHENTICATED, "send the token as 'authorization: Bearer TOKEN'")
    if principal.account is None:
        return principal.grants
    if principal.session is not None:
        session = sessions.find_session(tr, keys, principal.session)
        if session is None or session.is_over(now):
            raise Denied(Reason.SESSION_OVER, "the session or token has ended; log in again")
    account = accounts.find(tr, keys, principal.account)
    if account is None or account.disabled:
        raise Denied(Reason.ACCOUNT_DISABLED, "the account is disabled")
    _check_binding(principal, account)
    return account.grants


def _check_binding(principal: Principal, account: Account) -> None:
    """What stood for the account when the caller was recognised may have been taken from it since."""
    if principal.certificate is not None and principal.certificate not in account.certificates:
        raise Denied(Reason.UNAUTHENTICATED, "the certificate no longer stands for an account")
    if principal.subject is not None and principal.subject != (account.oidc_issuer, account.oidc_subject):
        raise Denied(Reason.UNAUTHENTICATED, "the token's subject no longer stands for an account")


def managing(asked: TenantId | None, *, of_server: bool | None = None) -> Rule[Granted]:
    """Who manages accounts: of a tenant its operators; of the server, the server's own.

    `of_server` None: of the server if no tenant is named by a caller who has none.
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


def managing_or_own(
    asked: TenantId | None, account: AccountId | None, *, of_server: bool | None = None
) -> Rule[Granted]:
    """Who manages accounts, and the account's own caller."""

    def rule(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
        if account is not None and principal.account == account and asked in {None, principal.tenant}:
            return anyone(tr, keys, principal, now)
        return managing(asked, of_server=of_server)(tr, keys, principal, now)

    return rule

"""Rules of access, checked inside the transaction of the call they guard. What is not allowed is denied.

What an account is granted, and whether its session still stands, is read in that transaction, as a reason for a
conflict: whatever was revoked before the call's commit is revoked for the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth.principal import Principal, PrincipalKind
from drillcore_server.domain.accounts import Grant, Permission
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput, Denied, Missing
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.nodes import Level
from drillcore_server.store import accounts, corpora, tenants
from drillcore_server.store.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class Granted:
    """What a rule found: who calls, and the tenant to act in if there is one."""

    principal: Principal
    tenant: TenantId | None


@dataclass(frozen=True, slots=True)
class InTenant(Granted):
    """The tenant to act in, and the grants there that carry one of the permissions that were asked for."""

    tenant: TenantId
    permissions: tuple[Permission, ...]
    grants: tuple[Grant, ...]

    def reaches(self, corpus: CorpusId, level: Level | None = None) -> bool:
        """Whether a corpus is granted, at this level, or at any if none is given."""
        return any(
            one.covers(corpus, level) if level is not None else one.corpus in {None, corpus} for one in self.grants
        )

    def corpus(self, tr: Reader, keys: Keyspace, corpus: CorpusId) -> Corpus:
        """The corpus. One that is not granted is not there."""
        if not self.reaches(corpus):
            raise Missing(Reason.CORPUS_NOT_FOUND, f"there is no corpus {corpus}")
        return corpora.get(tr, keys, self.tenant, corpus)

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
        if principal.tenant is not None:
            if asked not in {None, principal.tenant}:
                raise Missing(Reason.TENANT_NOT_FOUND, f"there is no tenant {asked}")
            tenant = tenants.get(tr, keys, principal.tenant).id
        elif asked is None:
            raise BadInput(Reason.TENANT_REQUIRED, "an operator must say which tenant to act in", field="tenant_id")
        else:
            tenant = tenants.get(tr, keys, asked).id
        allowing = tuple(one for one in grants if any(one.allows(permission, tenant) for permission in permissions))
        if not allowing:
            raise _denied(permissions)
        return InTenant(principal, tenant, permissions, allowing)

    return rule


def as_server(tenant: TenantId | None) -> Rule[Granted]:
    """The server itself, when it keeps house."""

    def rule(_tr: Reader, _keys: Keyspace, principal: Principal, _now: datetime) -> Granted:
        assert principal.kind is PrincipalKind.SERVER
        return Granted(principal, tenant)

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
        session = accounts.find_session(tr, keys, principal.session)
        if session is None or session.is_over(now):
            raise Denied(Reason.SESSION_OVER, "the session or token has ended; log in again")
    account = accounts.find(tr, keys, principal.account)
    if account is None or account.disabled:
        raise Denied(Reason.ACCOUNT_DISABLED, "the account is disabled")
    return account.grants

"""CreateAccount."""

from __future__ import annotations

from collections.abc import Iterable

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.credentials import Credentials
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.account_checks import check_certificates, check_subject, checked_grants, checked_login
from drillcore_server.domain.accounts import Account, AccountKind, AccountState, Grant
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import AccountId, TenantId, new_uuid
from drillcore_server.domain.named import checked_name
from drillcore_server.store import accounts, corpora, sharing, tenants
from drillcore_server.store.accounts import ACCOUNT_STATE
from drillcore_server.store.keyspace import Keyspace


def create_account(
    unit: Unit,
    call: Call,
    credentials: Credentials,
    *,
    tenant: TenantId | None,
    of_server: bool,
    kind: AccountKind,
    login: str,
    name: str,
    grants: Iterable[Grant],
    password: str,
    certificates: tuple[bytes, ...],
    oidc_issuer: str,
    oidc_subject: str,
) -> AccountState:
    """An account of a tenant, or an operator's of none. A password given here must be changed at the first login."""
    check_certificates(certificates)
    check_subject(oidc_issuer, oidc_subject)
    if kind is AccountKind.SERVICE and password:
        raise BadInput(Reason.INVALID_ARGUMENT, "a service account has tokens, no password", field="password")
    owner = tenant or call.principal.tenant
    account = Account(
        id=AccountId(new_uuid()),
        tenant_id=owner,
        kind=kind,
        login=checked_login(login),
        name=checked_name(name or ("" if kind is AccountKind.PERSON else login)),
        grants=checked_grants(grants, owner),
        created_at=call.at,
        created_by=call.principal.id,
        updated_at=call.at,
        version=1,
        certificates=certificates,
        oidc_issuer=oidc_issuer,
        oidc_subject=oidc_subject,
    )
    rule = access.managing(tenant, of_server=of_server)
    unit.look(call, rule, lambda _tr, _granted: None)  # before a stranger makes us hash
    new_hash = credentials.new_hash(account, None, password, "password") if password else None

    def work(tr: Transaction, granted: Granted, trail: Trail) -> AccountState:
        assert granted.tenant == owner
        check_granted(tr, unit.keys, account.grants)
        accounts.insert(tr, unit.keys, account)
        if new_hash is not None:
            first = credentials.changed(None, new_hash, call.at, by_other=True)
            accounts.put_credential(tr, unit.keys, account.id, first)
        trail.detail["account_id"] = str(account.id)
        trail.change(None, account)
        return accounts.state_of(tr, unit.keys, account)

    return unit.write(call, rule, ACCOUNT_STATE, work)


def check_granted(tr: Reader, keys: Keyspace, grants: Iterable[Grant]) -> None:
    """What grants name must be there."""
    for grant in grants:
        if grant.tenant is not None:
            tenants.get(tr, keys, grant.tenant)
            if grant.corpus is not None and sharing.owner_of(tr, keys, grant.tenant, grant.corpus) is None:
                corpora.get(tr, keys, grant.tenant, grant.corpus)

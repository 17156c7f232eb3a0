"""People and services with accounts, and ways to age their sessions and passwords."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from drillcore import Account, AccountKind, Client, DrillcoreError, Grant, Role
from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.identity.bearer_tokens import digest
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel import session_store as sessions
from drillcore_server.kernel.session_store import SESSION
from drillcore_server.storage.ids import AccountId
from tests.support.servers.running import ACME_ID, Running

FIRST = "the very first passphrase"
PASSWORD = "quite another passphrase"


@dataclass(frozen=True)
class Person:
    account: Account
    token: str
    """The token of an open session."""

    @property
    def login(self) -> str:
        return self.account.login


def make_person(
    server: Running, *grants: Grant, login: str | None = None, tenant: UUID | None = ACME_ID, **more: Any
) -> Person:
    """A person who has logged in once, and so has changed the first password to `PASSWORD`."""
    login = login or f"person-{uuid4()}"
    account = server.client().create_account(
        login,
        name="Pat Example",
        grants=grants,
        password=FIRST,
        tenant_id=tenant,
        server_account=tenant is None,
        **more,
    )
    return Person(account, server.client(None).login(login, FIRST, new_password=PASSWORD).token)


def make_service(server: Running, *grants: Grant, tenant: UUID = ACME_ID) -> Person:
    """A service account, and a token for it."""
    login = f"service-{uuid4()}"
    account = server.client().create_account(login, kind=AccountKind.SERVICE, grants=grants, tenant_id=tenant)
    return Person(account, server.client().create_token(account.id, "test", tenant_id=tenant).token)


def administrator(server: Running) -> Client:
    """An operator of acme."""
    return server.client(make_person(server, Grant(Role.OPERATOR)).token)


def refused(reason: Reason) -> Any:
    """The call in the block must be refused for this reason."""
    return pytest.raises(DrillcoreError, match=f"^{reason.name}:")


def age_session(server: Running, token: str, *, unused_for: timedelta, opened_before: timedelta | None = None) -> None:
    """Makes the session look as if it was last used, and opened, this long ago."""
    keys = server.server._unit.keys

    def work(tr: Transaction) -> None:
        session = sessions.find_session(tr, keys, digest(token))
        assert session is not None
        older = opened_before or timedelta()
        aged = replace(
            session,
            created_at=session.created_at - older,
            expires_at=session.expires_at - older,
            last_used_at=session.last_used_at - unused_for,
        )
        SESSION.write(tr, keys.session(digest(token)), aged)

    server.engine.run(work)


def age_password(server: Running, account: UUID, by: timedelta) -> None:
    """Makes the password look as if it was set, and tried, this long ago."""
    keys, account_id = server.server._unit.keys, AccountId(account)

    def work(tr: Transaction) -> None:
        known = accounts.find_credential(tr, keys, account_id)
        assert known is not None
        aged = replace(
            known,
            changed_at=known.changed_at - by,
            attempted_at=known.attempted_at and known.attempted_at - by,
            locked_until=known.locked_until and known.locked_until - by,
        )
        accounts.put_credential(tr, keys, account_id, aged)

    server.engine.run(work)

"""People with accounts who log in and sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from drillcore import Account, Client, Grant, Role
from drillcore_server.identity.settings import AuthSettings
from tests.support.servers.running import ACME_ID, Running

QUICK = AuthSettings(argon2_memory_kib=64, argon2_passes=1, argon2_lanes=1, failures_max=3)
"""Cheap settings, so that passwords are hashed in a moment: nobody attacks a test."""
_FIRST_PASSWORD = "handed over on a slip of paper"


@dataclass
class Person:
    """A person who can log in."""

    server: Running
    account: Account
    password: str

    def log_in(self, **settings: object) -> Client:
        """Opens a new session and returns its client."""
        login = self.server.client(None).login(self.account.login, self.password)
        return self.server.client(login.token, **settings)


def person(
    server: Running, login: str, *grants: Grant | Role, tenant: UUID | None = ACME_ID, name: str = "Ann Auditor"
) -> Person:
    """Makes a person of a tenant, with a password of their own."""
    operator = server.client()
    granted: Sequence[Grant] = [grant if isinstance(grant, Grant) else Grant(grant) for grant in grants]
    account = operator.create_account(
        login, name=name, grants=granted, password=_FIRST_PASSWORD, tenant_id=tenant, server_account=tenant is None
    )
    password = f"known to one only {uuid4()}"
    server.client(None).login(login, _FIRST_PASSWORD, new_password=password)
    return Person(server, account, password)

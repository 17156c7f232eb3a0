"""Who is calling."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from drillcore_server.domain.accounts import Account, AccountKind, Grant
from drillcore_server.domain.ids import AccountId, PrincipalId, TenantId


class PrincipalKind(enum.Enum):
    PERSON = "person"
    SERVICE = "service"
    SERVER = "server"
    """The server itself, when it keeps house."""
    NOBODY = "nobody"
    """Not authenticated: may log in, and nothing else."""


class Proof(enum.Enum):
    """How a caller proved who it is."""

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
    """An account's id; or a name from the settings file."""
    tenant: TenantId | None
    """The tenant it belongs to and cannot leave; None for the server's operators, who belong to none."""
    kind: PrincipalKind = PrincipalKind.SERVICE
    proof: Proof = Proof.STATIC_TOKEN
    grants: tuple[Grant, ...] = ()
    """Of callers from the settings file. Those of an account are read in the transaction of each call."""
    account: AccountId | None = None
    session: bytes | None = None
    """SHA-256 of the bearer token, where that is what is checked in each transaction."""
    login: str = ""
    certificate: bytes | None = None
    """SHA-256 of the client certificate, where that stands for the account."""
    subject: tuple[str, str] | None = None
    """Issuer and subject of the OIDC token, where that does."""


def principal_of(account: Account, proof: Proof) -> Principal:
    """An account's caller, without what is checked in each transaction."""
    kind = PrincipalKind.PERSON if account.kind is AccountKind.PERSON else PrincipalKind.SERVICE
    return Principal(PrincipalId(str(account.id)), account.tenant_id, kind, proof, (), account.id, login=account.login)


NOBODY: Final = Principal(PrincipalId(""), None, PrincipalKind.NOBODY, Proof.NONE)
SERVER: Final = Principal(PrincipalId("drillcore"), None, PrincipalKind.SERVER, Proof.NONE)

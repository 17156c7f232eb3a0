"""What preparing and making a signature share."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.audit.signers import SigningKeys
from drillcore_server.auth.principal import Principal, PrincipalKind, Proof
from drillcore_server.commands.credentials import Credentials
from drillcore_server.commands.signing_targets import Targets
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Account, AccountKind, Session
from drillcore_server.domain.errors import Denied
from drillcore_server.domain.ids import AccountId
from drillcore_server.store import accounts, sessions


@dataclass(frozen=True, slots=True)
class SigningDesk:
    """Everything that signing needs."""

    library: Library
    targets: Targets
    credentials: Credentials
    signing: SigningKeys

    @property
    def unit(self) -> Unit:
        return self.library.unit

    def signer(self, tr: Reader, call: Call) -> Signer:
        """The person who calls, in the session that their password opened. Raises `Denied` for anybody else."""
        account_id, token = _signing(call.principal)
        session = sessions.find_session(tr, self.unit.keys, token)
        account = accounts.find(tr, self.unit.keys, account_id)
        if session is None or not session.is_login or account is None or account.kind is not AccountKind.PERSON:
            raise _cannot_sign()
        return Signer(account, session, token)


@dataclass(frozen=True, slots=True)
class Signer:
    account: Account
    session: Session
    token: bytes
    """SHA-256 of the session's token."""

    @property
    def needs_login(self) -> bool:
        """The first signature of a session needs both components, the next ones the password."""
        return self.session.signed_at is None


def check_can_sign(principal: Principal) -> None:
    """Raises `Denied` for those who never can: services, and people who are known by something else than a password."""
    _signing(principal)


def _signing(principal: Principal) -> tuple[AccountId, bytes]:
    is_login = principal.kind is PrincipalKind.PERSON and principal.proof is Proof.SESSION
    if not is_login or principal.account is None or principal.session is None:
        raise _cannot_sign()
    return principal.account, principal.session


def _cannot_sign() -> Denied:
    return Denied(Reason.CANNOT_SIGN, "only a person who logged in with a password can sign")

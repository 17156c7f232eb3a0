"""RevokeToken."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Missing
from drillcore_server.domain.ids import AccountId, TenantId
from drillcore_server.store import accounts, sessions
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class Revoked:
    count: int


REVOKED = RecordKind(Revoked)


def revoke_token(
    unit: Unit, call: Call, *, tenant: TenantId | None, account_id: AccountId, token_id: UUID | None
) -> Revoked:
    """Ends a session or token of an account at once, or with no id all of them. Everybody may end their own."""

    def work(tr: Transaction, granted: Granted, trail: Trail) -> Revoked:
        account = accounts.get(tr, unit.keys, granted.tenant, account_id)
        held = [one for one in sessions.sessions_of(tr, unit.keys, account.id) if token_id in {None, one[1].id}]
        if token_id is not None and not held:
            raise Missing(Reason.TOKEN_NOT_FOUND, "the account has no such token")
        count = sum(sessions.revoke(tr, unit.keys, token_hash, session, call.at) for token_hash, session in held)
        trail.detail |= {"account_id": str(account.id), "revoked": count}
        if token_id is not None:
            trail.detail["token_id"] = token_id.hex
        return Revoked(count)

    return unit.write(call, access.managing_or_own(tenant, account_id), REVOKED, work)

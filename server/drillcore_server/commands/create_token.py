"""CreateToken."""

from __future__ import annotations

import math
from datetime import timedelta
from uuid import uuid4

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.auth.tokens import Mint, digest
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import AccountKind, Session
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput, NotReady
from drillcore_server.domain.ids import AccountId, TenantId
from drillcore_server.domain.named import checked_name
from drillcore_server.store import accounts, sessions
from drillcore_server.store.sessions import SESSION


def create_token(
    unit: Unit,
    call: Call,
    mint: Mint,
    *,
    tenant: TenantId | None,
    account_id: AccountId,
    name: str,
    lifetime_s: float,
    lifetime_s_max: float,
) -> tuple[str, Session]:
    """A token for a service account, and what is kept of it. A lifetime of 0 is the longest that is allowed."""
    if not (math.isfinite(lifetime_s) and 0 <= lifetime_s <= lifetime_s_max):
        message = f"lifetime_s must be 0 to {lifetime_s_max:g}, which is the longest that this server allows"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="lifetime_s")
    token = mint.token("token", call.principal.id, call.request_id, call.fingerprint)
    session = Session(
        id=uuid4(),
        account=account_id,
        name=checked_name(name),
        is_login=False,
        created_at=call.at,
        expires_at=call.at + timedelta(seconds=lifetime_s or lifetime_s_max),
        idle_timeout_s=None,
        last_used_at=call.at,
    )

    def work(tr: Transaction, granted: Granted, trail: Trail) -> Session:
        account = accounts.get(tr, unit.keys, granted.tenant, account_id)
        if account.kind is not AccountKind.SERVICE:
            raise BadInput(
                Reason.INVALID_ARGUMENT, "people log in: only a service account has tokens", field="account_id"
            )
        if account.disabled:
            raise NotReady(Reason.ACCOUNT_DISABLED, "the account is disabled")
        sessions.open_session(tr, unit.keys, digest(token), session)
        trail.detail |= {"account_id": str(account_id), "token_id": session.id.hex}
        return session

    return token, unit.write(call, access.managing(tenant), SESSION, work)

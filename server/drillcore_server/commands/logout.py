"""Logout."""

from __future__ import annotations

from datetime import datetime

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth.access import Granted
from drillcore_server.auth.principal import Principal
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import Session
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput, Denied
from drillcore_server.store import sessions
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.sessions import SESSION


def logout(unit: Unit, call: Call) -> None:
    """Ends the session, or revokes the token, that the call was made with."""
    token_hash = call.principal.session
    if token_hash is None:
        raise BadInput(Reason.INVALID_ARGUMENT, "this caller has no session that could end")

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Session:
        session = sessions.find_session(tr, unit.keys, token_hash)
        if session is None or not sessions.revoke(tr, unit.keys, token_hash, session, call.at):
            raise Denied(Reason.SESSION_OVER, "the session had ended before")
        trail.detail |= {"account_id": str(session.account), "session_id": str(session.id)}
        return session

    unit.write(call, _with_a_session, SESSION, work)


def _with_a_session(_tr: Reader, _keys: Keyspace, principal: Principal, _now: datetime) -> Granted:
    """Also a session that has ended: a retry must learn that it was this request which ended it."""
    return Granted(principal, principal.tenant)

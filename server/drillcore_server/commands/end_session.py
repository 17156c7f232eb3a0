"""EndSession."""

from __future__ import annotations

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_sessions import ENDED_SESSION, EndedSession, FactSessions
from drillcore_server.commands.unit import Call, refusing
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.fact_sessions import OwnSession
from drillcore_server.domain.ids import TenantId
from drillcore_server.store import fact_sessions


def end_session(sessions: FactSessions, call: Call, tenant: TenantId | None, session: str) -> int:
    """Forgets the facts of the caller's own session, and what it knows of its envelopes; how many facts there were.

    When it returns, their key is destroyed, and no envelope of the session is continued.
    """

    def work(tr: Transaction, granted: InTenant, trail: Trail) -> EndedSession:
        own = OwnSession(granted.tenant, call.principal.id, session)
        forgotten = fact_sessions.end(tr, sessions.unit.keys, own, call.at)
        if sessions.envelopes(granted.tenant).end_session(tr, own):
            trail.detail["envelope_session_ended"] = True
        trail.detail["session_facts_forgotten"] = forgotten
        return EndedSession(forgotten)

    rule = access.in_tenant(tenant, Permission.READ, Permission.WRITE)
    done = sessions.unit.write(call, rule, ENDED_SESSION, work)
    if done.facts:
        with refusing():
            sessions.sweep(call.at)
    return done.facts or 0

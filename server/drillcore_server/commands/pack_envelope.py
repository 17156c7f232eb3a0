"""PackEnvelope."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.envelope_asking import EnvelopeAsked, plan_of
from drillcore_server.commands.envelope_building import Window
from drillcore_server.commands.envelope_library import EnvelopeLibrary
from drillcore_server.commands.envelope_seeking import SoughtFacts
from drillcore_server.commands.issuing import Digest, Issued, Issuing
from drillcore_server.commands.unit import Call
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.envelope_headers import Miss
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import TenantId


def pack_envelope(
    library: EnvelopeLibrary,
    call: Call,
    *,
    tenant: TenantId | None,
    asked: EnvelopeAsked,
    if_match: str,
    salted: bool,
    digest: Digest,
) -> Issued:
    """The envelope for a query, or that it is not modified. Every fact in it counts as accessed.

    Raises `NotReady` if no envelope of an accepted tier can be packed; `Missing` if there must be relevant facts and
    there are none.
    """
    if salted and not asked.session:
        raise BadInput(Reason.INVALID_ARGUMENT, "a salted etag is of a session: name one", field="session_id")
    plan = plan_of(library, asked, call.at)
    is_conditional = bool(if_match) and not asked.directives.no_cache
    sought = SoughtFacts(library, plan, at_once=not is_conditional)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Issued:
        trail.private["query"] = plan.query
        shelves = library.facts.shelves(tr, granted, trail, plan.corpora, plan.as_of)
        issuing = Issuing(library, call, tr, granted.tenant, trail, plan, shelves, plan.session, salted, asked.accepted)
        miss: Miss | Issued = Miss.NO_CACHE if asked.directives.no_cache else Miss.NOT_CACHED
        if is_conditional:
            miss = issuing.unmodified(if_match)
        return miss if isinstance(miss, Issued) else issuing.issue(sought, Window(), None, digest, miss)

    return sought.run(lambda: library.unit.read(call, access.in_tenant(tenant, Permission.READ), work))

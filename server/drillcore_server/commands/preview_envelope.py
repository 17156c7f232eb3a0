"""PreviewEnvelope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.envelope_asking import EnvelopeAsked, plan_of
from drillcore_server.commands.envelope_building import Window
from drillcore_server.commands.envelope_library import EnvelopeLibrary
from drillcore_server.commands.envelope_seeking import SoughtFacts
from drillcore_server.commands.issuing import Issuing, touch
from drillcore_server.commands.unit import Call
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.cache_directives import CacheDirectives
from drillcore_server.domain.envelope_headers import Miss
from drillcore_server.domain.envelopes import Envelope
from drillcore_server.domain.ids import TenantId


@dataclass(frozen=True, slots=True)
class Previewed:
    envelope: Envelope
    """Its content is for no caller's eyes."""
    headers: Mapping[str, str]


def preview_envelope(
    library: EnvelopeLibrary, call: Call, *, tenant: TenantId | None, asked: EnvelopeAsked
) -> Previewed:
    """What PackEnvelope would give now. Nothing is kept of it, and no fact counts as accessed."""
    plan = plan_of(library, asked, call.at)
    sought = SoughtFacts(library, plan)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Previewed:
        trail.private["query"] = plan.query
        shelves = library.facts.shelves(tr, granted, trail, plan.corpora, plan.as_of)
        issuing = Issuing(library, call, tr, granted.tenant, trail, plan, shelves, plan.session, salted=False)
        built = issuing.builder(sought, Window(), None).built(asked.accepted)
        CacheDirectives(only_if_ckf=plan.only_if_ckf).check_relevant(built.best_relevance)
        touch(trail, shelves, built, accessed=False)
        return Previewed(built.envelope, issuing.headers(built, Miss.NOT_CACHED))

    return sought.run(lambda: library.unit.read(call, access.in_tenant(tenant, Permission.READ), work))

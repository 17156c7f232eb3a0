"""GetEnvelope."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.envelope_building import Built, EnvelopeBuilder, Window
from drillcore_server.commands.envelope_library import EnvelopeLibrary
from drillcore_server.commands.envelope_seeking import SoughtFacts
from drillcore_server.commands.envelope_select import SessionMemory
from drillcore_server.commands.issuing import Digest, touch
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.envelope_plans import HASH_BYTES, IssuedEnvelope, SeenFact
from drillcore_server.domain.envelopes import Envelope
from drillcore_server.domain.errors import Missing
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import EnvelopeId, FactId, TenantId
from drillcore_server.store.facts import FactsView
from drillcore_server.store.keyring import KeyErased


class Replay(enum.IntEnum):
    """Numbers are those of the protocol."""

    SAME = 1
    FACTS_SAME = 2
    ERASED = 3
    SESSION_OVER = 4
    DIFFERENT = 5
    TRIMMED = 6


@dataclass(frozen=True, slots=True)
class Replayed:
    issued: IssuedEnvelope
    replay: Replay
    envelope: Envelope | None
    """As it is built now, at the revisions of then."""
    missing: Sequence[FactId] = ()
    """Facts that it held and that cannot be read any more."""


def get_envelope(
    library: EnvelopeLibrary, call: Call, *, tenant: TenantId | None, wanted: EnvelopeId, digest: Digest
) -> Replayed:
    """An envelope that was issued: to the caller, or, for auditors, to anybody in the tenant. It is built again at its
    revisions and compared with what was issued."""
    rule = access.in_tenant(tenant, Permission.READ, Permission.AUDIT)
    issued = library.unit.look(call, rule, lambda tr, granted: _issued(library, call, tr, granted, wanted))
    sought = SoughtFacts(library, issued.plan)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Replayed:
        trail.private["query"] = issued.plan.query
        trail.detail["envelope"] = str(issued.id)
        try:
            shelves = [
                library.facts.shelf(tr, granted, trail, one.corpus, AsOf(one.revision)) for one in issued.corpora
            ]
        except Missing as missing:
            if missing.reason is not Reason.REVISION_TRIMMED:
                raise
            return Replayed(issued, Replay.TRIMMED, None)
        parent = None if issued.parent is None else library.store(granted.tenant).find(tr, issued.parent)
        built = _rebuilt(library, issued, parent, sought, shelves)
        touch(trail, shelves, built, accessed=True)
        return _compared(issued, built, shelves, digest)

    return sought.run(lambda: library.unit.read(call, rule, work))


def _issued(library: EnvelopeLibrary, call: Call, tr: Reader, granted: InTenant, wanted: EnvelopeId) -> IssuedEnvelope:
    found = library.store(granted.tenant).find(tr, wanted)
    audits = any(one.allows(Permission.AUDIT, granted.tenant) and one.corpus is None for one in granted.grants)
    if found is None or (found.principal != call.principal.id and not audits):
        raise Missing(Reason.ENVELOPE_NOT_FOUND, f"there is no envelope {wanted}, or it is no longer kept")
    return found


def _rebuilt(
    library: EnvelopeLibrary,
    issued: IssuedEnvelope,
    parent: IssuedEnvelope | None,
    sought: SoughtFacts,
    shelves: Sequence[Shelf],
) -> Built:
    memory = SessionMemory((), frozenset(issued.warm), frozenset(() if parent is None else parent.deferred))
    window = Window(issued.window, issued.seen, None, b"", issued.tiers)
    builder = EnvelopeBuilder(library, shelves, issued.plan, sought, memory, window, issued.at)
    built = builder.replayed(issued.strategy)
    if issued.is_salted:  # the salt is the session's: the facts are compared as they are
        built = replace(built, envelope=replace(built.envelope, etag=issued.etag))
    return built


def _compared(issued: IssuedEnvelope, built: Built, shelves: Sequence[Shelf], digest: Digest) -> Replayed:
    if digest(built.envelope) == issued.digest:
        return Replayed(issued, Replay.SAME, built.envelope)
    found = {one.id: _read(shelves, one.id) for one in issued.facts}
    missing = [one for one, fact in found.items() if not isinstance(fact, Fact)]
    return Replayed(issued, _why_not_same(issued, found), built.envelope, missing)


def _why_not_same(issued: IssuedEnvelope, found: Mapping[FactId, Fact | str | None]) -> Replay:
    """What the store says otherwise comes first: that a session is over, or something erased, must not hide it."""
    if not all(_says(fact, one) for one in issued.facts if isinstance(fact := found[one.id], Fact)):
        return Replay.DIFFERENT
    if _ERASED in found.values():
        return Replay.ERASED
    if issued.with_session_facts or issued.with_answer:
        return Replay.SESSION_OVER
    return Replay.DIFFERENT if None in found.values() else Replay.FACTS_SAME


_ERASED: Final = "erased"


def _read(shelves: Sequence[Shelf], wanted: FactId) -> Fact | str | None:
    """The fact as it was then, or that it was erased."""
    for shelf in shelves:
        try:
            fact = FactsView(shelf.view).fact(wanted)
        except KeyErased:
            return _ERASED
        if fact is not None:
            return fact
    return None


def _says(fact: Fact, seen: SeenFact) -> bool:
    return bytes.fromhex(fact.content_hash)[:HASH_BYTES] == seen.hashed

"""GetEnvelope: builds an issued envelope again and compares it. Also forgets old envelopes and their sessions."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Engine, Options, Reader
from drillcore_proto.reasons import Reason
from drillcore_server.envelopes import store as envelopes
from drillcore_server.envelopes.build import BuiltEnvelope, EnvelopeBuilder, Window
from drillcore_server.envelopes.envelope_plan import HASH_BYTES, IssuedEnvelope, SeenFact
from drillcore_server.envelopes.issue import Digest, count_accesses, record_facts
from drillcore_server.envelopes.model import Envelope
from drillcore_server.envelopes.request import EnvelopeReads, call_about
from drillcore_server.envelopes.select import SessionMemory, SoughtFacts
from drillcore_server.facts.model import Fact
from drillcore_server.facts.store import FactReader
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes
from drillcore_server.storage.ids import EnvelopeId, FactId, TenantId
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.keyspace import Keyspace


class Replay(enum.IntEnum):
    """How an envelope that was built again compares with the issued one. The numbers are those of the protocol."""

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
    """The envelope as it is built now, at the same revisions; None if a revision was trimmed."""
    missing: Sequence[FactId] = ()
    """Facts of the issued envelope that cannot be read any more."""


def get_envelope(
    reads: EnvelopeReads, call: Call, *, tenant: TenantId | None, wanted: EnvelopeId, digest: Digest
) -> Replayed:
    """Returns an issued envelope, built again at its revisions and compared with what was sent.

    A caller gets the envelopes that were issued to it; an auditor gets all envelopes of the tenant. Raises `Missing`.
    """
    rule = access.in_tenant(tenant, Permission.READ, Permission.AUDIT)
    named = reads.named(call, tenant, wanted)
    issued = reads.unit.look(call, rule, lambda tr, granted: _issued(reads, call, tr, granted, wanted), expected=named)
    call, sought = call_about(call, issued), SoughtFacts(reads, issued.plan)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> Replayed:
        trail.private["query"] = issued.plan.query
        trail.detail["envelope"] = str(issued.id)
        try:
            views = [reads.facts.at(tr, granted, trail, at.corpus, AsOf(at.revision)) for at in issued.corpora]
        except Missing as missing:
            if missing.reason is not Reason.REVISION_TRIMMED:
                raise
            return Replayed(issued, Replay.TRIMMED, None)
        parent = None if issued.parent is None else reads.store(granted.tenant).find(tr, issued.parent)
        built = _rebuilt(reads, issued, parent, sought, views)
        record_facts(trail, views, built)
        count_accesses(notes, views, built, call.at)
        return _compared(issued, built, views, digest)

    expected = [] if issued.parent is None else reads.named(call, tenant, issued.parent)
    return sought.run(lambda: reads.unit.read_with_notes(call, rule, work, expected=expected))


def _issued(reads: EnvelopeReads, call: Call, tr: Reader, granted: InTenant, wanted: EnvelopeId) -> IssuedEnvelope:
    found = reads.store(granted.tenant).find(tr, wanted)
    audits = any(grant.allows(Permission.AUDIT, granted.tenant) and grant.corpus is None for grant in granted.grants)
    if found is None or (found.principal != call.principal.id and not audits):
        raise Missing(
            Reason.ENVELOPE_NOT_FOUND, f"there is no envelope {wanted}, or it was kept long enough and forgotten"
        )
    return found


def _rebuilt(
    reads: EnvelopeReads,
    issued: IssuedEnvelope,
    parent: IssuedEnvelope | None,
    sought: SoughtFacts,
    views: Sequence[CorpusAtRevision],
) -> BuiltEnvelope:
    memory = SessionMemory((), frozenset(issued.warm), frozenset(() if parent is None else parent.deferred))
    window = Window(issued.window, issued.seen, None, b"", issued.tiers)
    builder = EnvelopeBuilder(reads, views, issued.plan, sought, memory, window, issued.at)
    built = builder.replayed(issued.strategy)
    if issued.is_salted:  # the salt belongs to the session: the etag is taken over, and the rest compared
        built = replace(built, envelope=replace(built.envelope, etag=issued.etag))
    return built


def _compared(
    issued: IssuedEnvelope, built: BuiltEnvelope, views: Sequence[CorpusAtRevision], digest: Digest
) -> Replayed:
    if digest(built.envelope) == issued.digest:
        return Replayed(issued, Replay.SAME, built.envelope)
    found = _read(views, [seen.id for seen in issued.facts])
    missing = [id_ for id_, fact in found.items() if not isinstance(fact, Fact)]
    return Replayed(issued, _why_not_same(issued, found), built.envelope, missing)


def _why_not_same(issued: IssuedEnvelope, found: Mapping[FactId, Fact | str | None]) -> Replay:
    """Returns the reason. A fact with other content comes first: an erasure or an ended session must not hide it."""
    if not all(_is_unchanged(fact, seen) for seen in issued.facts if isinstance(fact := found[seen.id], Fact)):
        return Replay.DIFFERENT
    if _ERASED in found.values():
        return Replay.ERASED
    if issued.with_session_facts or issued.with_answer:
        return Replay.SESSION_OVER
    return Replay.DIFFERENT if None in found.values() else Replay.FACTS_SAME


_ERASED: Final = "erased"


def _read(views: Sequence[CorpusAtRevision], wanted: Sequence[FactId]) -> dict[FactId, Fact | str | None]:
    """Returns the facts at that revision; `_ERASED` for one that was erased, None for one that no corpus has."""
    found: dict[FactId, Fact | str | None] = {}
    for view in views:
        left = [fact for fact in wanted if found.get(fact) is None]
        found |= zip(left, FactReader(view).facts_unless_erased(left), strict=True)
        for id_ in left:
            if found[id_] is None and _is_erased(view, id_):
                found[id_] = _ERASED
    return found


def _is_erased(view: CorpusAtRevision, fact: FactId) -> bool:
    """Tells whether the fact is there, but was erased. Reads nothing that was not read with it."""
    try:
        return FactReader(view).fact(fact) is not None
    except KeyErased:
        return True


def _is_unchanged(fact: Fact, seen: SeenFact) -> bool:
    return bytes.fromhex(fact.content_hash)[:HASH_BYTES] == seen.hashed


_BATCH: Final = 500


def forget_envelopes(engine: Engine, keys: Keyspace, now: datetime) -> int:
    """Forgets everything that is due, in as many transactions as it takes. Returns how many envelopes and sessions.

    May be run again.
    """
    forgotten = 0
    while done := engine.run(lambda tr: envelopes.forget(tr, keys, now, _BATCH), Options(idempotent=True)):
        forgotten += done
    return forgotten

"""Issues envelopes: confirms the caller's own, or builds a new one and stores what later calls need of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Final
from uuid import UUID

import orjson

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.build import BuiltEnvelope, EnvelopeBuilder, Window
from drillcore_server.envelopes.envelope_plan import (
    SESSION_ORIGIN,
    CorpusAt,
    EnvelopePlan,
    EnvelopeSession,
    IssuedEnvelope,
    WindowQuality,
)
from drillcore_server.envelopes.headers import Miss, headers, not_modified_headers, refused_quality_headers
from drillcore_server.envelopes.model import MEMORY_TIER_STORE, Envelope, QualityTier
from drillcore_server.envelopes.quality import gap, meets
from drillcore_server.envelopes.request import EnvelopeReads
from drillcore_server.envelopes.select import SessionMemory, SoughtFacts
from drillcore_server.envelopes.store import EnvelopeStore, etag_key
from drillcore_server.facts.cache_directives import CacheDirectives
from drillcore_server.facts.model import Fact
from drillcore_server.facts.session_fact_store import OwnSession, SessionFact
from drillcore_server.facts.store import note_accesses_later
from drillcore_server.kernel import revisions
from drillcore_server.kernel.canonical_json import fingerprint
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes
from drillcore_server.storage.ids import EnvelopeId, FactId, TenantId

Digest = Callable[[Envelope], bytes]
"""Computes the SHA-256 of an envelope as it is sent."""
SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class EnvelopeAnswer:
    """The answer to a caller."""

    id: EnvelopeId
    envelope: Envelope | None
    """None: the caller's own envelope is still valid."""
    created_at: datetime
    headers: Mapping[str, str]
    continuation: str = ""
    """The id with which ContinueEnvelope makes the next window; empty if there is none."""
    history: Sequence[QualityTier] = ()
    """The tiers of the session's windows so far, with this one if it is new."""
    session: str = ""


@dataclass(frozen=True)
class EnvelopeIssuer:
    """Issues the envelope of one call, in its transaction."""

    reads: EnvelopeReads
    call: Call
    tr: Reader
    tenant: TenantId
    trail: Trail
    notes: Notes
    plan: EnvelopePlan
    views: Sequence[CorpusAtRevision]
    chain: str
    """The session that the windows belong to; empty for a first window without a session."""
    salted: bool
    salt: bytes
    """The salt of the session, if this call begins it. Made before the transaction, which may run more than once."""
    accepted: frozenset[QualityTier] = frozenset()
    """The tiers that the caller accepts. Empty: any tier."""

    @cached_property
    def id(self) -> EnvelopeId:
        return envelope_id(self.tenant, self.call)

    @cached_property
    def store(self) -> EnvelopeStore:
        return self.reads.store(self.tenant)

    @cached_property
    def session(self) -> EnvelopeSession | None:
        """The session so far; None if there is none or it is over."""
        return self.store.session(self.tr, self._own(self.chain), self.call.at) if self.chain else None

    @cached_property
    def kept(self) -> IssuedEnvelope | None:
        """The envelope that an earlier run of the same request was given."""
        return self.store.find(self.tr, self.id)

    def unmodified(self, if_match: str) -> EnvelopeAnswer | Miss:
        """Confirms the caller's envelope if it answers the same question and nothing has changed; else says why not.

        An etag stands for the ids of facts only. If envelopes with different texts were issued under it, nobody knows
        which of them the caller has, so none is confirmed.
        """
        named = self._named(if_match)
        if not named:
            return Miss.UNKNOWN_ETAG
        known = named[0]
        if len(named) > 1 or not self._is_unchanged(known) or self.kept is not None:
            return Miss.FACTS_UPDATED
        self.trail.detail |= {"envelope": str(known.id), "not_modified": True}
        tiers = () if self.session is None else tuple(window.tier for window in self.session.history)
        made = not_modified_headers(known.etag)
        return EnvelopeAnswer(known.id, None, known.at, made, history=tiers, session=self.plan.session)

    def issue(
        self,
        sought: SoughtFacts,
        window: Window,
        parent: IssuedEnvelope | None,
        digest: Digest,
        miss: Miss,
    ) -> EnvelopeAnswer:
        """Builds the envelope, and stores its record in the transaction of the call's audit record.

        A repeated request gets the same envelope, although its session has moved on. Raises `NotReady` if no accepted
        tier is reached, and `Missing` if relevant facts are required and there are none.
        """
        begun, before = self._begun(), self._tiers_before()
        placed = replace(window, salt=begun.salt if self.salted else b"", tiers=before)
        built = self.builder(sought, placed, parent).built(self.accepted)
        self._check(built)
        record_facts(self.trail, self.views, built)
        count_accesses(self.notes, self.views, built, self.call.at)
        self.trail.detail |= {"envelope": str(self.id), "etag": built.envelope.etag}
        continuation = str(self.id) if built.is_continued else ""
        quality = WindowQuality(self.id, built.envelope.quality.tier)
        issued = self._issued(built, placed, parent, begun, digest)
        self.notes.add(lambda tr: self._store_issued(tr, issued, begun, quality, built, bool(continuation)))
        made = self.headers(built, miss, continuation)
        session = begun.own.id if self.chain or continuation else ""
        return EnvelopeAnswer(
            self.id, built.envelope, self.call.at, made, continuation, (*before, quality.tier), session
        )

    def headers(self, built: BuiltEnvelope, miss: Miss, continuation: str = "") -> Mapping[str, str]:
        settings = self.reads.settings
        return headers(
            built.envelope,
            ckf_hits=built.ckf_hits,
            miss=miss,
            continuation_id=continuation,
            windows_max=settings.windows_max,
            community_shown=settings.community_header,
        )

    def builder(self, sought: SoughtFacts, window: Window, parent: IssuedEnvelope | None) -> EnvelopeBuilder:
        return EnvelopeBuilder(
            self.reads,
            self.views,
            self.plan,
            sought,
            self._memory(parent),
            window,
            self.call.at,
        )

    @cached_property
    def corpora(self) -> tuple[CorpusAt, ...]:
        """The states of the corpora that are read, in the order of their ids."""
        views = sorted(self.views, key=lambda view: view.corpus.id)
        return tuple(
            CorpusAt(view.corpus.id, view.revision, revisions.head(self.tr, view.keys), view.corpus.number)
            for view in views
        )

    def _named(self, if_match: str) -> list[IssuedEnvelope]:
        """Returns the caller's envelopes of this question that `if_match` names, by an id or an etag."""
        question = self._question(None)
        try:
            found = self.store.find(self.tr, EnvelopeId(UUID(if_match)))
        except ValueError:
            return self.store.find_etag(self.tr, etag_key(self.call.principal.id, if_match, question))
        is_own = found is not None and found.principal == self.call.principal.id
        return [found] if found is not None and is_own and found.question == question else []

    def _is_unchanged(self, known: IssuedEnvelope) -> bool:
        """Tells whether everything that the envelope depends on, besides the question, is unchanged since."""
        is_aged = known.changes_at is not None and known.changes_at <= self.call.at
        return not is_aged and known.corpora == self.corpora and known.remembered == self._remembered

    def _tiers_before(self) -> tuple[QualityTier, ...]:
        if self.kept is not None:
            return self.kept.tiers
        return () if self.session is None else tuple(window.tier for window in self.session.history)

    def _memory(self, parent: IssuedEnvelope | None) -> SessionMemory:
        known = self.kept or self.session
        warm = frozenset(() if known is None else known.warm)
        deferred: frozenset[FactId] = frozenset(() if parent is None else parent.deferred)
        return SessionMemory(self._session_facts, warm, deferred)

    @cached_property
    def _session_facts(self) -> list[SessionFact]:
        if not self.plan.has_session:
            return []
        own = self._own(self.plan.session)
        return self.reads.facts.sessions.found(self.tr, own, self.trail, self.notes, self.call.at)

    def _own(self, session: str) -> OwnSession:
        return OwnSession(self.tenant, self.call.principal.id, session)

    def _begun(self) -> EnvelopeSession:
        """Returns the session with a new end, or a new session."""
        own, ends_at = self._own(self.chain or f"envelope-{self.id}"), self.reads.session_end(self.call.at)
        if self.session is not None:
            return replace(self.session, ends_at=ends_at)
        return EnvelopeSession(own, ends_at, self.salt)

    def _question(self, parent: EnvelopeId | None) -> bytes:
        """Returns a fingerprint of everything that the caller asked for, without the store and the session."""
        return fingerprint("envelope asked for", self.plan, self.salted, self.accepted, parent)

    @cached_property
    def _remembered(self) -> bytes:
        """A fingerprint of everything in the session that influences an envelope."""
        known = None if self.plan.memory_tier_max >= MEMORY_TIER_STORE else self.session
        warm = [] if known is None else sorted(known.warm)
        return fingerprint("session remembered", self._session_facts, warm)

    def _check(self, built: BuiltEnvelope) -> None:
        CacheDirectives(only_if_ckf=self.plan.only_if_ckf).check_relevant(built.best_relevance)
        quality, accepted = built.envelope.quality, self.accepted
        if accepted and not meets(quality.tier, sorted(accepted)):
            envelope = built.envelope
            why = gap(quality, sorted(accepted), envelope.packing.tokens, envelope.budget.tokens)
            names = " or ".join(tier.name for tier in sorted(accepted))
            message = (
                f"the best possible envelope has tier {quality.tier.name}, not {names}; the gap in the error's details "
                "says what would help"
            )
            told = refused_quality_headers(quality.tier)
            raise NotReady(Reason.QUALITY_NOT_MET, message, **told, gap=orjson.dumps(why).decode())

    def _issued(
        self,
        built: BuiltEnvelope,
        window: Window,
        parent: IssuedEnvelope | None,
        begun: EnvelopeSession,
        digest: Digest,
    ) -> IssuedEnvelope:
        return IssuedEnvelope(
            id=self.id,
            principal=self.call.principal.id,
            at=self.call.at,
            record=self.trail.record,
            plan=built.plan,
            corpora=self.corpora,
            digest=digest(built.envelope),
            etag=built.envelope.etag,
            tier=built.envelope.quality.tier,
            window=window.number,
            facts=built.facts,
            seen=window.seen,
            deferred=built.envelope.deferred,
            chain=begun.own.id,
            strategy=built.envelope.strategy,
            parent=None if parent is None else parent.id,
            with_session_facts=bool(self._session_facts),
            with_answer=window.answer is not None,
            is_salted=self.salted,
            tiers=window.tiers,
            warm=built.warm_before,
            changes_at=built.changes_at,
            question=self._question(None if parent is None else parent.id),
            remembered=self._remembered,
            origins=self._origins(built),
        )

    def _origins(self, built: BuiltEnvelope) -> bytes:
        """Returns a byte for each fact: the place of its corpus, or `SESSION_ORIGIN`."""
        places = {corpus.corpus: place for place, corpus in enumerate(self.corpora)}
        included = (packed.ranked.candidate for packed in built.envelope.packing.included)
        facts = [candidate for candidate in included if candidate.fact is not None]
        return bytes(SESSION_ORIGIN if fact.session_only else places[fact.corpus] for fact in facts)

    def _store_issued(
        self,
        tr: Transaction,
        issued: IssuedEnvelope,
        begun: EnvelopeSession,
        quality: WindowQuality,
        built: BuiltEnvelope,
        is_continued: bool,
    ) -> None:
        key = etag_key(self.call.principal.id, issued.etag, issued.question)
        self.store.issue(tr, issued, key, _text_hash(built.envelope), self.reads.kept_until(self.call.at))
        if self.chain or is_continued:
            self.store.use(tr, begun, quality, built.warm, self.call.at)


def envelope_id(tenant: TenantId, call: Call) -> EnvelopeId:
    """The id follows from caller and request id, so a repeated request gets the same."""
    named = b"\0".join([tenant.bytes, call.principal.id.encode(), call.request_id.encode()])
    return EnvelopeId(UUID(bytes=hashlib.sha256(b"envelope" + named).digest()[:16], version=5))


def expected_keys(
    reads: EnvelopeReads, call: Call, tenant: TenantId | None, plan: EnvelopePlan, chain: str
) -> list[bytes]:
    """The keys that issuing an envelope begins with, to be read ahead. Empty if the tenant is not known yet."""
    owner, caller, keys = call.principal.tenant or tenant, call.principal.id, reads.unit.keys
    if owner is None:
        return []
    expected = [keys.envelope(owner, envelope_id(owner, call))]
    if plan.has_session:
        expected.append(keys.session_facts_head(owner, caller, plan.session))
    if chain:
        expected.append(keys.envelope_session(owner, caller, chain))
    return expected


def _text_hash(envelope: Envelope) -> bytes:
    """Returns 8 bytes of a hash of the text and the tier."""
    return hashlib.sha256(envelope.quality.tier.name.encode() + envelope.packing.text.encode()).digest()[:8]


def record_facts(trail: Trail, views: Sequence[CorpusAtRevision], built: BuiltEnvelope) -> None:
    """Adds the facts of the envelope to the audit record of the call."""
    for view in views:
        trail.touch_facts(_stored_facts(view, built), view.corpus.number)


def count_accesses(notes: Notes, views: Sequence[CorpusAtRevision], built: BuiltEnvelope, at: datetime) -> None:
    """Counts each fact of the envelope as accessed."""
    for view in views:
        note_accesses_later(notes, view.keys, (fact.id for fact in _stored_facts(view, built)), at)


def _stored_facts(view: CorpusAtRevision, built: BuiltEnvelope) -> list[Fact]:
    """Returns the facts of an envelope that are stored in one corpus, without those of the caller's session."""
    included = [packed.ranked.candidate for packed in built.envelope.packing.included]
    return [
        candidate.fact
        for candidate in included
        if candidate.fact is not None and not candidate.session_only and candidate.corpus == view.corpus.id
    ]

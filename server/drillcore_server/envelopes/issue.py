"""What every envelope that is issued goes through: the session, the building, what is kept of it, and its headers."""

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
from drillcore_server.envelopes.build import Built, EnvelopeBuilder, Window
from drillcore_server.envelopes.envelope_plan import (
    OF_SESSION,
    CorpusAt,
    EnvelopePlan,
    EnvelopeSession,
    IssuedEnvelope,
    WindowQuality,
)
from drillcore_server.envelopes.headers import Miss, headers, not_modified_headers, refused_quality_headers
from drillcore_server.envelopes.model import Envelope, QualityTier
from drillcore_server.envelopes.quality import gap, meets
from drillcore_server.envelopes.request import EnvelopeReads
from drillcore_server.envelopes.select import SessionMemory, SoughtFacts
from drillcore_server.envelopes.store import EnvelopeStore, known_by
from drillcore_server.facts import counters
from drillcore_server.facts.cache_directives import CacheDirectives
from drillcore_server.facts.model import Fact
from drillcore_server.facts.session_store import OwnSession, SessionFact
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.fingerprint import fingerprint
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes
from drillcore_server.storage.ids import EnvelopeId, FactId, TenantId

Digest = Callable[[Envelope], bytes]
"""The SHA-256 of an envelope as it is sent."""
SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Issued:
    """What a caller gets."""

    id: EnvelopeId
    envelope: Envelope | None
    """None: it is what the caller has."""
    created_at: datetime
    headers: Mapping[str, str]
    continuation: str = ""
    history: Sequence[QualityTier] = ()
    session: str = ""


@dataclass(frozen=True)
class Issuing:
    """One call's work on the corpora that it reads."""

    reads: EnvelopeReads
    call: Call
    tr: Reader
    tenant: TenantId
    trail: Trail
    notes: Notes
    plan: EnvelopePlan
    views: Sequence[CorpusAtRevision]
    chain: str
    """The session that windows belong to; empty if the caller named none and this is the first."""
    salted: bool
    salt: bytes
    """For the session, if this call begins it. Made before the transaction, which may be run more than once."""
    accepted: frozenset[QualityTier] = frozenset()
    """None: any."""

    @cached_property
    def id(self) -> EnvelopeId:
        """The same for a repeated request."""
        named = b"\0".join([self.tenant.bytes, self.call.principal.id.encode(), self.call.request_id.encode()])
        return EnvelopeId(UUID(bytes=hashlib.sha256(b"envelope" + named).digest()[:16], version=5))

    @cached_property
    def store(self) -> EnvelopeStore:
        return self.reads.store(self.tenant)

    @cached_property
    def session(self) -> EnvelopeSession | None:
        """What the session knows so far, if it stands."""
        return self.store.session(self.tr, self._own(self.chain), self.call.at) if self.chain else None

    @cached_property
    def kept(self) -> IssuedEnvelope | None:
        """What this very request got when it was made before."""
        return self.store.find(self.tr, self.id)

    def unmodified(self, if_match: str) -> Issued | Miss:
        """That the caller has what it would get, if the same question was asked on the same state; else why not.

        An etag tells the ids of facts only. If envelopes were issued under it that say different things, nobody knows
        which of them the caller has, so that it is good for none of them.
        """
        named = self._named(if_match)
        if not named:
            return Miss.UNKNOWN_ETAG
        known = named[0]
        if len(named) > 1 or not self._is_as_it_was(known) or self.kept is not None:
            return Miss.FACTS_UPDATED
        self.trail.detail |= {"envelope": str(known.id), "not_modified": True}
        tiers = () if self.session is None else tuple(one.tier for one in self.session.history)
        made = not_modified_headers(known.etag)
        return Issued(known.id, None, known.at, made, history=tiers, session=self.plan.session)

    def issue(
        self,
        sought: SoughtFacts,
        window: Window,
        parent: IssuedEnvelope | None,
        digest: Digest,
        miss: Miss,
    ) -> Issued:
        """Builds the envelope, and keeps what is to be kept of it with the call's audit record.

        A repeated request gets what it got, though its session has gone on.
        """
        begun, before = self._begun(), self._tiers_before()
        placed = replace(window, salt=begun.salt if self.salted else b"", tiers=before)
        built = self.builder(sought, placed, parent).built(self.accepted)
        self._check(built)
        touch(self.trail, self.views, built)
        count_accesses(self.notes, self.views, built, self.call.at)
        self.trail.detail |= {"envelope": str(self.id), "etag": built.envelope.etag}
        continuation = str(self.id) if built.is_continued else ""
        quality = WindowQuality(self.id, built.envelope.quality.tier)
        issued = self._issued(built, placed, parent, begun, digest)
        self.notes.add(lambda tr: self._keep(tr, issued, begun, quality, built, bool(continuation)))
        made = self.headers(built, miss, continuation)
        session = begun.own.id if self.chain or continuation else ""
        return Issued(self.id, built.envelope, self.call.at, made, continuation, (*before, quality.tier), session)

    def headers(self, built: Built, miss: Miss, continuation: str = "") -> Mapping[str, str]:
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
        """As they are read, in the order of their ids."""
        views = sorted(self.views, key=lambda one: one.corpus.id)
        return tuple(
            CorpusAt(one.corpus.id, one.revision, revisions.head(self.tr, one.keys), one.corpus.number) for one in views
        )

    def _named(self, if_match: str) -> list[IssuedEnvelope]:
        """The envelopes of this question that an etag stands for, one for each thing they say; or one by its id."""
        question = self._question(None)
        try:
            one = self.store.find(self.tr, EnvelopeId(UUID(if_match)))
        except ValueError:
            return self.store.find_etag(self.tr, known_by(self.call.principal.id, if_match, question))
        is_own = one is not None and one.principal == self.call.principal.id
        return [one] if one is not None and is_own and one.question == question else []

    def _is_as_it_was(self, known: IssuedEnvelope) -> bool:
        """Whether all that an envelope depends on, beside the question, is what it was when it was issued."""
        is_aged = known.changes_at is not None and known.changes_at <= self.call.at
        return not is_aged and known.corpora == self.corpora and known.remembered == self._remembered

    def _tiers_before(self) -> tuple[QualityTier, ...]:
        if self.kept is not None:
            return self.kept.tiers
        return () if self.session is None else tuple(one.tier for one in self.session.history)

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
        """The session that goes on until it is idle for too long; a new one if there is none."""
        own, ends_at = self._own(self.chain or f"envelope-{self.id}"), self.reads.session_end(self.call.at)
        if self.session is not None:
            return replace(self.session, ends_at=ends_at)
        return EnvelopeSession(own, ends_at, self.salt)

    def _question(self, parent: EnvelopeId | None) -> bytes:
        """What is asked for, whatever the store and the session have to say."""
        return fingerprint("envelope asked for", self.plan, self.salted, self.accepted, parent)

    @cached_property
    def _remembered(self) -> bytes:
        """What the session has that changes an envelope."""
        known = None if self.plan.memory_tier_max >= 3 else self.session
        warm = [] if known is None else sorted(known.warm)
        return fingerprint("session remembered", self._session_facts, warm)

    def _check(self, built: Built) -> None:
        CacheDirectives(only_if_ckf=self.plan.only_if_ckf).check_relevant(built.best_relevance)
        quality, accepted = built.envelope.quality, self.accepted
        if accepted and not meets(quality.tier, sorted(accepted)):
            envelope = built.envelope
            why = gap(quality, sorted(accepted), envelope.packing.tokens, envelope.budget.tokens)
            names = ", ".join(one.name for one in sorted(accepted))
            message = f"the best envelope that can be packed has tier {quality.tier.name}, not {names}"
            told = refused_quality_headers(quality.tier)
            raise NotReady(Reason.QUALITY_NOT_MET, message, **told, gap=orjson.dumps(why).decode())

    def _issued(
        self, built: Built, window: Window, parent: IssuedEnvelope | None, begun: EnvelopeSession, digest: Digest
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

    def _origins(self, built: Built) -> bytes:
        """Which corpus each of the facts is of."""
        places = {one.corpus: place for place, one in enumerate(self.corpora)}
        included = (one.ranked.candidate for one in built.envelope.packing.included)
        facts = [one for one in included if one.fact is not None]
        return bytes(OF_SESSION if one.session_only else places[one.corpus] for one in facts)

    def _keep(
        self,
        tr: Transaction,
        issued: IssuedEnvelope,
        begun: EnvelopeSession,
        quality: WindowQuality,
        built: Built,
        is_continued: bool,
    ) -> None:
        found_by = known_by(self.call.principal.id, issued.etag, issued.question)
        self.store.issue(tr, issued, found_by, _said(built.envelope), self.reads.kept_until(self.call.at))
        if self.chain or is_continued:
            self.store.use(tr, begun, quality, built.warm, self.call.at)


def _said(envelope: Envelope) -> bytes:
    """What a model is given, and how good that is."""
    return hashlib.sha256(envelope.quality.tier.name.encode() + envelope.packing.text.encode()).digest()[:8]


def touch(trail: Trail, views: Sequence[CorpusAtRevision], built: Built) -> None:
    """Records which facts the caller gets."""
    for view in views:
        trail.touch_facts(_stored_facts(view, built), view.corpus.number)


def count_accesses(notes: Notes, views: Sequence[CorpusAtRevision], built: Built, at: datetime) -> None:
    """Counts each fact that is in the envelope as accessed."""
    for view in views:
        counters.note_later(notes, view.keys, (fact.id for fact in _stored_facts(view, built)), at)


def _stored_facts(view: CorpusAtRevision, built: Built) -> list[Fact]:
    """The facts of one corpus in an envelope, without those of the caller's session."""
    included = [ranked.ranked.candidate for ranked in built.envelope.packing.included]
    return [
        candidate.fact
        for candidate in included
        if candidate.fact is not None and not candidate.session_only and candidate.corpus == view.corpus.id
    ]

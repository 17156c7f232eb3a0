"""PackEnvelope, PreviewEnvelope and ContinueEnvelope."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Final
from uuid import UUID

import numpy as np

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.documents.processors import ChunkInput, ExtractiveProcessor, Member, TokenRange
from drillcore_server.envelopes.build import Window
from drillcore_server.envelopes.envelope_plan import EnvelopePlan, IssuedEnvelope
from drillcore_server.envelopes.headers import Miss
from drillcore_server.envelopes.issue import (
    SALT_BYTES,
    Digest,
    EnvelopeAnswer,
    EnvelopeIssuer,
    expected_keys,
    record_facts,
)
from drillcore_server.envelopes.model import Candidate, Envelope, FoundBy
from drillcore_server.envelopes.request import EnvelopeQuestion, EnvelopeReads, call_about, plan_of
from drillcore_server.envelopes.select import SoughtFacts
from drillcore_server.facts.cache_directives import CacheDirectives
from drillcore_server.facts.session_fact_store import OwnSession
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.errors import BadInput, Missing
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes
from drillcore_server.storage.ids import CorpusId, EnvelopeId, FactId, SourceId, TenantId
from drillcore_server.tokenizers.encodings import TokenCounter


def pack_envelope(
    reads: EnvelopeReads,
    call: Call,
    *,
    tenant: TenantId | None,
    asked: EnvelopeQuestion,
    if_match: str,
    salted: bool,
    digest: Digest,
) -> EnvelopeAnswer:
    """Returns the envelope for a query, or confirms that the caller's is still valid. Its facts count as accessed.

    Raises `NotReady` if no accepted tier is reached, and `Missing` if relevant facts are required and there are none. A
    call that is repeated with the same request id gets the same envelope.
    """
    if salted and not asked.session:
        message = "a salted etag belongs to a session: give session_id"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="session_id")
    plan = plan_of(reads, asked, call.at)
    is_conditional = bool(if_match) and not asked.directives.no_cache
    sought = SoughtFacts(reads, plan, at_once=not is_conditional)
    salt = os.urandom(SALT_BYTES)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> EnvelopeAnswer:
        trail.private["query"] = plan.query
        views = reads.facts.at_each(tr, granted, trail, plan.corpora, plan.as_of)
        issuer = EnvelopeIssuer(
            reads, call, tr, granted.tenant, trail, notes, plan, views, plan.session, salted, salt, asked.accepted
        )
        miss: Miss | EnvelopeAnswer = Miss.NO_CACHE if asked.directives.no_cache else Miss.NOT_CACHED
        if is_conditional:
            miss = issuer.unmodified(if_match)
        return miss if isinstance(miss, EnvelopeAnswer) else issuer.issue(sought, Window(), None, digest, miss)

    rule, expected = access.in_tenant(tenant, Permission.READ), expected_keys(reads, call, tenant, plan, plan.session)
    return sought.run(lambda: reads.unit.read_with_notes(call, rule, work, expected=expected))


@dataclass(frozen=True, slots=True)
class Previewed:
    envelope: Envelope
    """For counts and scores only: the caller does not get its content."""
    headers: Mapping[str, str]


def preview_envelope(
    reads: EnvelopeReads, call: Call, *, tenant: TenantId | None, asked: EnvelopeQuestion
) -> Previewed:
    """Returns what PackEnvelope would give now. Stores nothing but the audit record, and counts no accesses.

    Raises `Missing` as `pack_envelope`.
    """
    plan = plan_of(reads, asked, call.at)
    sought = SoughtFacts(reads, plan)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> Previewed:
        trail.private["query"] = plan.query
        views = reads.facts.at_each(tr, granted, trail, plan.corpora, plan.as_of)
        issuer = EnvelopeIssuer(reads, call, tr, granted.tenant, trail, notes, plan, views, plan.session, False, b"")
        built = issuer.builder(sought, Window(), None).built(asked.accepted)
        CacheDirectives(only_if_ckf=plan.only_if_ckf).check_relevant(built.best_relevance)
        record_facts(trail, views, built)
        return Previewed(built.envelope, issuer.headers(built, Miss.NOT_CACHED))

    rule, expected = access.in_tenant(tenant, Permission.READ), expected_keys(reads, call, tenant, plan, plan.session)
    return sought.run(lambda: reads.unit.read_with_notes(call, rule, work, expected=expected))


_PART_CHARACTERS: Final = 4_000
"""The length of the parts in which a text is summarised."""


def condensed(text: str, counter: TokenCounter, tokens_max: int) -> str:
    """Shortens a text: to its most important sentences, in their order, or else to its beginning.

    A text that is short enough stays whole. White space becomes single spaces. The same text gives the same result.
    """
    plain = " ".join(text.split())
    if counter.count(plain) <= tokens_max:
        return plain
    processor = ExtractiveProcessor(counter)
    parts = [plain[start : start + _PART_CHARACTERS] for start in range(0, len(plain), _PART_CHARACTERS)]
    digests = processor.process_chunks([ChunkInput(part, 0, f"{number:08}") for number, part in enumerate(parts)])
    summary = processor.summarise_section("", [Member.of(digest) for digest in digests], TokenRange(0, tokens_max))
    sentences = " ".join(summary.summary.text.split())
    fits = bool(sentences) and counter.count(sentences) <= tokens_max
    return sentences if fits else _beginning(plain, counter, tokens_max)


def _beginning(plain: str, counter: TokenCounter, tokens_max: int) -> str:
    """Returns as many characters as fit. Finds the number by bisection."""
    low, high = 0, len(plain)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if counter.count(plain[:middle]) <= tokens_max else (low, middle - 1)
    return plain[:low]


ANSWER_CHARACTERS_MAX: Final = 100_000
ANSWER_TOKENS_MAX: Final = 256
"""The size of the summary of an answer. It reminds the model, and must not fill the window."""
_NO_CORPUS: Final = CorpusId(UUID(int=0))


def continue_envelope(
    reads: EnvelopeReads,
    call: Call,
    *,
    tenant: TenantId | None,
    continuation: EnvelopeId,
    answer: str,
    digest: Digest,
) -> EnvelopeAnswer:
    """Returns the next window of a chain: facts that did not fit before, or whose content has changed since.

    Raises `Missing` if the continuation does not exist, belongs to another caller, or its session is over. A call that
    is repeated with the same request id gets the same envelope.
    """
    if len(answer) > ANSWER_CHARACTERS_MAX:
        message = f"previous_answer has over {ANSWER_CHARACTERS_MAX} characters; send a summary of the answer"
        raise BadInput(Reason.TOO_LARGE, message, field="previous_answer")
    rule = access.in_tenant(tenant, Permission.READ)
    named = reads.named(call, tenant, continuation)
    parent = reads.unit.look(
        call, rule, lambda tr, granted: _parent(reads, call, tr, granted, continuation), expected=named
    )
    plan, call = parent.plan, call_about(call, parent)
    answer_fact = _answer_candidate(reads, plan, answer)
    sought = SoughtFacts(reads, plan)
    window = Window(parent.window + 1, (*parent.seen, *parent.facts), answer_fact)
    salt = os.urandom(SALT_BYTES)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> EnvelopeAnswer:
        trail.private["query"] = plan.query
        trail.detail["continues"] = str(parent.id)
        _parent(reads, call, tr, granted, continuation)
        views = reads.facts.at_each(tr, granted, trail, plan.corpora, plan.as_of)
        issuer = EnvelopeIssuer(
            reads, call, tr, granted.tenant, trail, notes, plan, views, parent.chain, parent.is_salted, salt
        )
        return issuer.issue(sought, window, parent, digest, Miss.NOT_CACHED)

    expected = [*named, *expected_keys(reads, call, tenant, plan, parent.chain)]
    return sought.run(lambda: reads.unit.read_with_notes(call, rule, work, expected=expected))


def _parent(
    reads: EnvelopeReads, call: Call, tr: Reader, granted: InTenant, continuation: EnvelopeId
) -> IssuedEnvelope:
    """Returns the envelope to continue: the caller's own, in a session that is not over, with facts left."""
    store = reads.store(granted.tenant)
    found = store.find(tr, continuation)
    if found is None or found.principal != call.principal.id:
        raise _missing()
    if store.session(tr, OwnSession(granted.tenant, call.principal.id, found.chain), call.at) is None:
        raise _missing()
    if not found.deferred or found.window >= reads.settings.windows_max:
        raise _missing()
    return found


def _missing() -> Missing:
    message = "there is no such continuation, or its session is over; begin again with PackEnvelope"
    return Missing(Reason.CONTINUATION_NOT_FOUND, message)


def _answer_candidate(reads: EnvelopeReads, plan: EnvelopePlan, answer: str) -> Candidate | None:
    """Returns a summary of the model's answer as a candidate with the highest scores; None for an empty answer."""
    if not answer.strip():
        return None
    content = condensed(answer, reads.models.find(plan.model).tokenizer, ANSWER_TOKENS_MAX)
    return Candidate(
        id=FactId(UUID(bytes=hashlib.sha256(content.encode()).digest()[:16], version=5)),
        corpus=_NO_CORPUS,
        content=content,
        source=SourceId(""),
        importance=1.0,
        ingested_at=datetime.combine(plan.ranked_on, time(), UTC),
        relevance=1.0,
        vector=np.zeros(0, np.float32),
        model="",
        found_by=(FoundBy.ANSWER,),
        memory_tier=0,
        is_answer=True,
    )

"""PackEnvelope.

PreviewEnvelope.

A long text in few words of its own.

ContinueEnvelope.
"""

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
from drillcore_server.documents.processing import ChunkInput, ExtractiveProcessor, Member, TokenRange
from drillcore_server.envelopes.build import Window
from drillcore_server.envelopes.envelope_plan import EnvelopePlan, IssuedEnvelope
from drillcore_server.envelopes.headers import Miss
from drillcore_server.envelopes.issue import SALT_BYTES, Digest, Issued, Issuing, touch
from drillcore_server.envelopes.model import Candidate, Envelope, FoundBy
from drillcore_server.envelopes.request import EnvelopeAsked, EnvelopeReads, plan_of
from drillcore_server.envelopes.select import SoughtFacts
from drillcore_server.facts.cache_directives import CacheDirectives
from drillcore_server.facts.session_store import OwnSession
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.accounts import Permission
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
    plan = plan_of(reads, asked, call.at)
    is_conditional = bool(if_match) and not asked.directives.no_cache
    sought = SoughtFacts(reads, plan, at_once=not is_conditional)
    salt = os.urandom(SALT_BYTES)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> Issued:
        trail.private["query"] = plan.query
        views = reads.facts.at_each(tr, granted, trail, plan.corpora, plan.as_of)
        issuing = Issuing(
            reads, call, tr, granted.tenant, trail, notes, plan, views, plan.session, salted, salt, asked.accepted
        )
        miss: Miss | Issued = Miss.NO_CACHE if asked.directives.no_cache else Miss.NOT_CACHED
        if is_conditional:
            miss = issuing.unmodified(if_match)
        return miss if isinstance(miss, Issued) else issuing.issue(sought, Window(), None, digest, miss)

    return sought.run(lambda: reads.unit.read_with_notes(call, access.in_tenant(tenant, Permission.READ), work))


@dataclass(frozen=True, slots=True)
class Previewed:
    envelope: Envelope
    """Its content is for no caller's eyes."""
    headers: Mapping[str, str]


def preview_envelope(reads: EnvelopeReads, call: Call, *, tenant: TenantId | None, asked: EnvelopeAsked) -> Previewed:
    """What PackEnvelope would give now. Nothing is kept of it, and no fact counts as accessed."""
    plan = plan_of(reads, asked, call.at)
    sought = SoughtFacts(reads, plan)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> Previewed:
        trail.private["query"] = plan.query
        views = reads.facts.at_each(tr, granted, trail, plan.corpora, plan.as_of)
        issuing = Issuing(reads, call, tr, granted.tenant, trail, notes, plan, views, plan.session, False, b"")
        built = issuing.builder(sought, Window(), None).built(asked.accepted)
        CacheDirectives(only_if_ckf=plan.only_if_ckf).check_relevant(built.best_relevance)
        touch(trail, views, built)
        return Previewed(built.envelope, issuing.headers(built, Miss.NOT_CACHED))

    return sought.run(lambda: reads.unit.read_with_notes(call, access.in_tenant(tenant, Permission.READ), work))


_PART_CHARACTERS: Final = 4_000
"""Of a text that are weighed together."""


def condensed(text: str, counter: TokenCounter, tokens_max: int) -> str:
    """The text, if it is short enough; else its heaviest sentences, in their order; else its beginning.

    White space is single spaces. The same text gives the same.
    """
    plain = " ".join(text.split())
    if counter.count(plain) <= tokens_max:
        return plain
    processor = ExtractiveProcessor(counter)
    parts = [plain[start : start + _PART_CHARACTERS] for start in range(0, len(plain), _PART_CHARACTERS)]
    digests = processor.process_chunks([ChunkInput(part, 0, f"{number:08}") for number, part in enumerate(parts)])
    summary = processor.summarise_section("", [Member.of(one) for one in digests], TokenRange(0, tokens_max))
    said = " ".join(summary.summary.text.split())
    return said if said and counter.count(said) <= tokens_max else _beginning(plain, counter, tokens_max)


def _beginning(plain: str, counter: TokenCounter, tokens_max: int) -> str:
    """As many characters as fit, found by halving."""
    low, high = 0, len(plain)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if counter.count(plain[:middle]) <= tokens_max else (low, middle - 1)
    return plain[:low]


ANSWER_CHARACTERS_MAX: Final = 100_000
ANSWER_TOKENS_MAX: Final = 256
"""Of the summary of an answer: it is to remind the model, not to fill the window."""
_NOTHING: Final = UUID(int=0)


def continue_envelope(
    reads: EnvelopeReads,
    call: Call,
    *,
    tenant: TenantId | None,
    continuation: EnvelopeId,
    answer: str,
    digest: Digest,
) -> Issued:
    """The next window of a chain: what did not fit before, and nothing twice unless it says something else by now.

    Raises `Missing` for a continuation that is another's, or whose session is over.
    """
    if len(answer) > ANSWER_CHARACTERS_MAX:
        message = f"the answer has over {ANSWER_CHARACTERS_MAX} characters; send a summary of it"
        raise BadInput(Reason.TOO_LARGE, message, field="previous_answer")
    rule = access.in_tenant(tenant, Permission.READ)
    parent = reads.unit.look(call, rule, lambda tr, granted: _parent(reads, call, tr, granted, continuation))
    plan = parent.plan
    said = _answer(reads, plan, answer)
    sought = SoughtFacts(reads, plan)
    window = Window(parent.window + 1, (*parent.seen, *parent.facts), said)
    salt = os.urandom(SALT_BYTES)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> Issued:
        trail.private["query"] = plan.query
        trail.detail["continues"] = str(parent.id)
        _parent(reads, call, tr, granted, continuation)
        views = reads.facts.at_each(tr, granted, trail, plan.corpora, plan.as_of)
        issuing = Issuing(
            reads, call, tr, granted.tenant, trail, notes, plan, views, parent.chain, parent.is_salted, salt
        )
        return issuing.issue(sought, window, parent, digest, Miss.NOT_CACHED)

    return sought.run(lambda: reads.unit.read_with_notes(call, rule, work))


def _parent(
    reads: EnvelopeReads, call: Call, tr: Reader, granted: InTenant, continuation: EnvelopeId
) -> IssuedEnvelope:
    """The envelope to go on from: the caller's own, in a session that stands, and with something left."""
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
    return Missing(Reason.CONTINUATION_NOT_FOUND, "there is no such continuation, or its session is over; pack anew")


def _answer(reads: EnvelopeReads, plan: EnvelopePlan, answer: str) -> Candidate | None:
    """What the model said, condensed, as a fact that comes first: nothing is nearer to the question."""
    if not answer.strip():
        return None
    content = condensed(answer, reads.models.find(plan.model).tokenizer, ANSWER_TOKENS_MAX)
    return Candidate(
        id=FactId(UUID(bytes=hashlib.sha256(content.encode()).digest()[:16], version=5)),
        corpus=CorpusId(_NOTHING),
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

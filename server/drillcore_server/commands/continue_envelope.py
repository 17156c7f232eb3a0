"""ContinueEnvelope."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, time
from typing import Final
from uuid import UUID

import numpy as np

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.envelope_building import Window
from drillcore_server.commands.envelope_library import EnvelopeLibrary
from drillcore_server.commands.envelope_seeking import SoughtFacts
from drillcore_server.commands.issuing import Digest, Issued, Issuing
from drillcore_server.commands.unit import Call
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.envelope_headers import Miss
from drillcore_server.domain.envelope_plans import EnvelopePlan, IssuedEnvelope
from drillcore_server.domain.envelopes import Candidate, FoundBy
from drillcore_server.domain.errors import BadInput, Missing
from drillcore_server.domain.fact_sessions import OwnSession
from drillcore_server.domain.ids import CorpusId, EnvelopeId, FactId, SourceId, TenantId
from drillcore_server.ingest.condensing import condensed

ANSWER_CHARACTERS_MAX: Final = 100_000
ANSWER_TOKENS_MAX: Final = 256
"""Of the summary of an answer: it is to remind the model, not to fill the window."""
_NOTHING: Final = UUID(int=0)


def continue_envelope(
    library: EnvelopeLibrary,
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
    parent = library.unit.look(call, rule, lambda tr, granted: _parent(library, call, tr, granted, continuation))
    plan = parent.plan
    said = _answer(library, plan, answer)
    sought = SoughtFacts(library, plan)
    window = Window(parent.window + 1, (*parent.seen, *parent.facts), said)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Issued:
        trail.private["query"] = plan.query
        trail.detail["continues"] = str(parent.id)
        _parent(library, call, tr, granted, continuation)
        shelves = library.facts.shelves(tr, granted, trail, plan.corpora, plan.as_of)
        issuing = Issuing(library, call, tr, granted.tenant, trail, plan, shelves, parent.chain, parent.is_salted)
        return issuing.issue(sought, window, parent, digest, Miss.NOT_CACHED)

    return sought.run(lambda: library.unit.read(call, rule, work))


def _parent(
    library: EnvelopeLibrary, call: Call, tr: Reader, granted: InTenant, continuation: EnvelopeId
) -> IssuedEnvelope:
    """The envelope to go on from: the caller's own, in a session that stands, and with something left."""
    store = library.store(granted.tenant)
    found = store.find(tr, continuation)
    if found is None or found.principal != call.principal.id:
        raise _missing()
    if store.session(tr, OwnSession(granted.tenant, call.principal.id, found.chain), call.at) is None:
        raise _missing()
    if not found.deferred or found.window >= library.settings.windows_max:
        raise _missing()
    return found


def _missing() -> Missing:
    return Missing(Reason.CONTINUATION_NOT_FOUND, "there is no such continuation, or its session is over; pack anew")


def _answer(library: EnvelopeLibrary, plan: EnvelopePlan, answer: str) -> Candidate | None:
    """What the model said, condensed, as a fact that comes first: nothing is nearer to the question."""
    if not answer.strip():
        return None
    content = condensed(answer, library.models.find(plan.model).tokenizer, ANSWER_TOKENS_MAX)
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

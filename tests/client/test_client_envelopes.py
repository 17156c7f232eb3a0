"""Context envelopes through the clients. Each claim holds for both Client and AsyncClient."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import date, datetime
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

import drillcore
from drillcore import (
    AsyncClient,
    Client,
    EnvelopeFact,
    FactFilter,
    FactStatus,
    GroundingMode,
    Provenance,
    QualityTier,
    RawSpan,
    Reason,
    RenderFormat,
    Replay,
    ScoringOptions,
    Span,
    TierCap,
)
from drillcore._api.envelope_messages import to_issued, to_packed, to_preview
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2, nodes_pb2
from tests.support.data import envelope_messages as messages
from tests.support.data.envelope_messages import ENVELOPE, ETAG, HEADERS, OTHER, PARENT, RAW, TEXT, THIRD
from tests.support.data.fact_messages import AT, CHUNK, COMMUNITY, CORPUS, FACT, LATER, RECORD, TENANT, stamp
from tests.support.servers.in_memory_server import Peer, because, explained, running

Do = Callable[..., Any]

SCORING = ScoringOptions(
    policy="cosine-1",
    relevance_weight=0.0,
    importance_weight=0.2,
    freshness_weight=0.3,
    diversity_weight=0.4,
    freshness_horizon_days=90,
    relevance_floor=0.6,
    duplicate_similarity=0.9,
    candidates_per_query=20,
)
FILTER = FactFilter(
    source_ids=["sop-7"],
    statuses=[FactStatus.ACTIVE],
    community_ids=[COMMUNITY],
    metadata={"k": "v"},
    ingested_after=AT,
    ingested_before=LATER,
    document_ids=[TENANT],
    chunk_ids=[CHUNK],
)
QUESTION: dict[str, Any] = {
    "corpus_ids": [CORPUS],
    "model": "gpt-4o",
    "budget_tokens": 2_000,
    "context_window": 8_000,
    "system_prompt": "Be brief.",
    "system_prompt_tokens": 3,
    "expected_response_tokens": 0,
    "safety_margin_tokens": 10,
    "filters": FILTER,
    "grounding_mode": GroundingMode.CONTEXT_STRICT,
    "scoring": SCORING,
    "accept_tiers": [QualityTier.S, QualityTier.A],
    "cache_control": "max-age=60",
    "session_id": "visit-12",
    "exact": True,
    "as_of": 9,
    "format": RenderFormat.XML,
    "window_fact_ids": [OTHER],
    "memory_tier_max": 0,
}
ASKED = pb.EnvelopeQuestion(
    query="who keeps it",
    corpus_ids=[str(CORPUS)],
    filters=facts_pb2.FactFilters(
        source_ids=["sop-7"],
        statuses=[facts_pb2.FACT_STATUS_ACTIVE],
        community_ids=[str(COMMUNITY)],
        metadata={"k": "v"},
        ingested_after=stamp(AT),
        ingested_before=stamp(LATER),
        document_ids=[str(TENANT)],
        chunk_ids=[str(CHUNK)],
    ),
    budget=pb.TokenBudget(
        model="gpt-4o",
        tokens=2_000,
        context_window=8_000,
        system_prompt="Be brief.",
        system_prompt_tokens=3,
        expected_response_tokens=0,
        safety_margin_tokens=10,
    ),
    grounding_mode=pb.GROUNDING_MODE_CONTEXT_STRICT,
    scoring=pb.ScoringOptions(
        policy="cosine-1",
        relevance_weight=0.0,
        importance_weight=0.2,
        freshness_weight=0.3,
        diversity_weight=0.4,
        freshness_horizon_days=90,
        relevance_floor=0.6,
        duplicate_similarity=0.9,
        candidates_per_query=20,
    ),
    accept_tiers=[pb.QUALITY_TIER_S, pb.QUALITY_TIER_A],
    cache_control="max-age=60",
    session_id="visit-12",
    exact=True,
    as_of=nodes_pb2.AsOf(revision=9),
    format=pb.RENDER_FORMAT_XML,
    window_fact_ids=[str(OTHER)],
    memory_tier_max=0,
)
FULL_ANSWERS: dict[str, tuple[Message, Callable[[Any], object]]] = {
    "packed": (messages.packed(not_modified=True, candidates=[messages.full_candidate()]), to_packed),
    "preview": (messages.preview(), to_preview),
    "issued": (messages.issued(), to_issued),
}


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


def sync(address: str, method: str, *args: Any, **options: Any) -> Any:
    with Client(address, tenant_id=TENANT) as client:
        return getattr(client, method)(*args, **options)


def asynchronous(address: str, method: str, *args: Any, **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(address, tenant_id=TENANT) as client:
            return await getattr(client, method)(*args, **options)

    return asyncio.run(run())


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def do(request: pytest.FixtureRequest, peer: Peer) -> Do:
    """Calls a method of a client of the peer and returns its result."""
    return lambda method, *args, **options: request.param(peer.address, method, *args, **options)


def parts(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """Every field that the message could have, and those of the messages in it. A map counts as a single field."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        value = getattr(message, field.name)
        for inner in value if field.is_repeated else [value]:
            if not inner.DESCRIPTOR.full_name.startswith("google."):
                yield from parts(inner)


def unset(message: Message) -> list[str]:
    """The fields with nothing in them. In a oneof, a single field is enough."""
    return [
        f"{part.DESCRIPTOR.name}.{field.name}"
        for part, field in parts(message)
        if field not in [filled for filled, _ in part.ListFields()]
        and not (field.containing_oneof and part.WhichOneof(field.containing_oneof.name))
    ]


@pytest.mark.parametrize(("message", "decode"), FULL_ANSWERS.values(), ids=FULL_ANSWERS)
def test_every_field_of_an_answer_reaches_the_caller(message: Message, decode: Callable[[Any], object]) -> None:
    assert unset(message) == []
    whole = decode(message)
    for number, (_, field) in enumerate(parts(message)):
        without = type(message).FromString(message.SerializeToString())
        holder, same = list(parts(without))[number]
        assert same is field
        holder.ClearField(field.name)
        assert differs(whole, without, decode), f"{field.full_name} is not converted"


def differs(whole: object, message: Message, decode: Callable[[Any], object]) -> bool:
    try:
        return decode(message) != whole
    except (KeyError, ValueError):
        return True  # the conversion failed without this field, so it reads the field


def test_every_field_of_a_question_is_sent(do: Do, peer: Peer) -> None:
    assert unset(ASKED) == []
    peer.answers |= {"PackEnvelope": messages.packed(), "PreviewEnvelope": messages.preview()}
    options = {"if_match": ETAG, "explain": True, "salted_etag": True}
    do("pack_envelope", "who keeps it", **QUESTION, **options)
    do("preview_envelope", "who keeps it", **QUESTION)
    packed, previewed = peer.requests
    assert unset(packed) == unset(previewed) == []
    assert packed == pb.PackEnvelopeRequest(tenant_id=str(TENANT), question=ASKED, **options)
    assert previewed == pb.PreviewEnvelopeRequest(tenant_id=str(TENANT), question=ASKED)


def test_options_that_a_question_omits_are_left_to_the_server(do: Do, peer: Peer) -> None:
    peer.answers["PackEnvelope"] = messages.packed()
    do("pack_envelope", "who keeps it")
    assert peer.requests[0].question == pb.EnvelopeQuestion(
        query="who keeps it",
        budget=pb.TokenBudget(),
        grounding_mode=pb.GROUNDING_MODE_CONTEXT_PREFERRED,
        format=pb.RENDER_FORMAT_MARKDOWN,
    )


def test_an_envelope_comes_with_its_facts_and_their_sources(do: Do, peer: Peer) -> None:
    peer.answers["PackEnvelope"] = messages.packed()
    found = do("pack_envelope", "who keeps it")
    assert (found.envelope_id, found.created_at, found.headers) == (ENVELOPE, AT, HEADERS)
    assert (found.not_modified, found.continuation_id, found.session_id) == (False, "c-1", "visit-12")
    assert (found.quality_history, found.candidates) == ((QualityTier.A, QualityTier.B), ())
    envelope = found.envelope
    assert (envelope.quality_tier, envelope.saturation, envelope.text) == (QualityTier.B, 0.884, TEXT)
    assert envelope.caps == (TierCap(QualityTier.B, "saturation", "0.884 is below 0.95"),)
    assert (envelope.grounding_mode, envelope.format) == (GroundingMode.CONTEXT_STRICT, RenderFormat.MARKDOWN)
    assert (envelope.revisions, envelope.ranked_on) == ({CORPUS: 9}, date(2026, 1, 31))
    assert envelope.deferred_fact_ids == (THIRD,)
    assert envelope.facts == (
        EnvelopeFact(
            fact_id=FACT,
            content="Keep the audit trail as long as the record.",
            source_id="sop-7",
            relevance_score=0.81,
            importance_weight=0.9,
            composite_score=0.762,
            token_count=14,
            position=1,
            community="records, trails",
            ingested_at=AT,
            freshness_score=0.5,
            diversity_bonus=1.0,
            memory_tier=3,
            stale=True,
            version=4,
            corpus_id=CORPUS,
            provenance=Provenance(
                source_id="sop-7",
                source_location="page 3",
                document_id=TENANT,
                document_title="Records and their trails",
                chunk_id=CHUNK,
                span=Span(120, 168),
                raws=(RawSpan(RAW, Span(20, 68)),),
                lead_spans=(Span(3, 17),),
            ),
            session_only=True,
            answer_summary=True,
        ),
    )


def test_missing_fields_of_an_envelopes_fact_are_none(do: Do, peer: Peer) -> None:
    bare = [pb.EnvelopeFact(fact_id=str(FACT)), messages.plain_fact()]
    peer.answers["PackEnvelope"] = messages.packed(envelope=messages.envelope(facts=bare))
    first, second = do("pack_envelope", "who keeps it").envelope.facts
    assert (first.corpus_id, first.provenance) == (None, None)
    assert (second.provenance.document_id, second.provenance.chunk_id, second.provenance.span) == (None,) * 3


def test_an_envelope_that_is_not_modified_is_not_sent(do: Do, peer: Peer) -> None:
    peer.answers["PackEnvelope"] = messages.not_modified()
    found = do("pack_envelope", "who keeps it", if_match=ETAG)
    assert (found.not_modified, found.envelope, found.envelope_id) == (True, None, ENVELOPE)
    assert (found.created_at, found.headers) == (None, {"CRP-Context-Cache-Status": "HIT"})


def test_every_candidate_is_returned_on_demand(do: Do, peer: Peer) -> None:
    peer.answers["PackEnvelope"] = messages.packed(candidates=messages.candidates())
    found = do("pack_envelope", "who keeps it", explain=True).candidates
    assert [(candidate.fact_id, candidate.outcome, candidate.position) for candidate in found] == [
        (FACT, "included", 1),
        (OTHER, "duplicate", 0),
        (THIRD, "over-budget", 0),
    ]
    assert (found[0].found_by, found[1].detail, found[2].token_count) == (
        ("vectors", "words", "sections"),
        str(FACT),
        300,
    )


def test_a_chain_is_continued_with_the_previous_answer(do: Do, peer: Peer) -> None:
    peer.answers["ContinueEnvelope"] = messages.packed(continuation_id="")
    found = do("continue_envelope", "c-1", "Five years.", explain=True)
    assert (found.envelope.window_number, found.continuation_id) == (1, "")
    assert peer.requests == [
        pb.ContinueEnvelopeRequest(
            tenant_id=str(TENANT), continuation_id="c-1", previous_answer="Five years.", explain=True
        )
    ]


def test_a_preview_has_tier_and_tokens(do: Do, peer: Peer) -> None:
    peer.answers["PreviewEnvelope"] = messages.preview()
    found = do("preview_envelope", "who keeps it")
    assert (found.quality_tier, found.estimated_tokens, found.token_budget) == (QualityTier.B, 1768, 2000)
    assert (found.revisions, found.headers, found.etag) == ({CORPUS: 9}, HEADERS, ETAG)


def test_an_issued_envelope_comes_with_its_comparison(do: Do, peer: Peer) -> None:
    peer.answers["GetEnvelope"] = messages.issued(replay=pb.REPLAY_ERASED)
    found = do("get_envelope", ENVELOPE)
    assert (found.replay, found.missing_fact_ids, found.fact_ids) == (Replay.ERASED, (OTHER,), (FACT, OTHER))
    assert (found.parent_envelope_id, found.audit_record_id, found.window_number) == (PARENT, RECORD, 2)
    assert peer.requests == [pb.GetEnvelopeRequest(tenant_id=str(TENANT), envelope_id=str(ENVELOPE))]


@pytest.mark.parametrize("replay", list(Replay))
def test_the_envelope_is_none_if_it_cannot_be_built_again(do: Do, peer: Peer, replay: Replay) -> None:
    number = pb.Replay.Value(f"REPLAY_{replay.name}")
    peer.answers["GetEnvelope"] = messages.issued(
        replay=number, envelope=None, parent_envelope_id="", audit_record_id=""
    )
    found = do("get_envelope", ENVELOPE)
    assert (found.replay, found.envelope, found.parent_envelope_id, found.audit_record_id) == (replay, None, None, None)


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (QualityTier, pb.QualityTier),
        (GroundingMode, pb.GroundingMode),
        (RenderFormat, pb.RenderFormat),
        (Replay, pb.Replay),
    ],
    ids=lambda enum: getattr(enum, "__name__", ""),
)
def test_every_enum_value_of_the_protocol_has_a_name(words: Any, numbers: Any) -> None:
    names = [name for name in numbers.keys() if not name.endswith("_UNSPECIFIED")]  # noqa: SIM118  # not a mapping
    assert len(names) == len(words)
    assert all(name.endswith(f"_{word.name}") for name, word in zip(names, words, strict=True))


def test_a_gap_in_quality_reaches_the_caller(do: Do, peer: Peer) -> None:
    reason = Reason.QUALITY_NOT_MET
    peer.failures = [explained(reason.code, reason.name, "the best tier is C", best_tier="C", gap='{"coverage": 0.2}')]
    with pytest.raises(drillcore.FailedPrecondition, match="the best tier is C") as caught:
        do("pack_envelope", "who keeps it", accept_tiers=[QualityTier.S])
    assert caught.value.reason is reason
    assert caught.value.metadata == {"best_tier": "C", "gap": '{"coverage": 0.2}'}


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.UNKNOWN_MODEL, drillcore.InvalidArgument),
        (Reason.BUDGET_TOO_SMALL, drillcore.InvalidArgument),
        (Reason.CONTINUATION_NOT_FOUND, drillcore.NotFound),
        (Reason.ENVELOPE_NOT_FOUND, drillcore.NotFound),
        (Reason.NO_CKF_FACTS, drillcore.NotFound),
    ],
    ids=lambda parameter: getattr(parameter, "name", ""),
)
def test_refusals_are_errors_of_the_kind_of_their_code(
    do: Do, peer: Peer, reason: Reason, kind: type[drillcore.DrillcoreError]
) -> None:
    peer.failures = [because(reason)]
    with pytest.raises(kind) as caught:
        do("continue_envelope", "c-1")
    assert caught.value.reason is reason


def test_a_time_without_zone_is_refused_before_any_call(do: Do, peer: Peer) -> None:
    with pytest.raises(ValueError, match="no zone"):
        do("pack_envelope", "who keeps it", as_of=datetime(2026, 1, 2))
    assert peer.seen == []

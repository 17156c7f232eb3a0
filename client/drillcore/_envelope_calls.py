"""Calls about context envelopes. See `_calls`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from drillcore import _convert_envelopes as convert
from drillcore import _convert_facts, _convert_nodes
from drillcore._call import Call, Id, id_text
from drillcore._convert_nodes import AsOf
from drillcore._envelope_results import (
    EnvelopePreview,
    GroundingMode,
    IssuedEnvelope,
    PackedEnvelope,
    QualityTier,
    RenderFormat,
    ScoringOptions,
)
from drillcore._fact_results import FactFilter
from drillcore_proto.v1 import envelopes_pb2 as pb

_ENVELOPES: Final = "/drillcore_proto.v1.EnvelopeService/"


def pack_envelope(
    query: str,
    *,
    corpus_ids: Collection[Id] = (),
    model: str = "",
    budget_tokens: int | None = None,
    context_window: int | None = None,
    system_prompt: str = "",
    system_prompt_tokens: int | None = None,
    expected_response_tokens: int | None = None,
    safety_margin_tokens: int | None = None,
    filters: FactFilter | None = None,
    grounding_mode: GroundingMode = GroundingMode.CONTEXT_PREFERRED,
    scoring: ScoringOptions | None = None,
    accept_tiers: Collection[QualityTier] = (),
    cache_control: str = "",
    session_id: str = "",
    if_match: str = "",
    explain: bool = False,
    exact: bool = False,
    as_of: AsOf | None = None,
    format: RenderFormat = RenderFormat.MARKDOWN,  # noqa: A002 - the word for it
    window_fact_ids: Collection[Id] = (),
    memory_tier_max: int | None = None,
    salted_etag: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PackedEnvelope]:
    """The facts that a language model should see for a query, within a budget of tokens. Counts as an access of each.

    The budget is `budget_tokens`, or what is left of the context window, the model's own or `context_window`, after
    system prompt, query, expected response (2,048) and safety margin (512). `model` names whose tokenizer counts.
    Without `corpus_ids` all that the caller may read are searched, shared ones too.

    With the etag or id of an envelope as `if_match` the answer may be that it is not modified. `explain` tells of every
    candidate. `exact` compares every vector. Facts in `window_fact_ids` are in the caller's window, and not packed
    again. `memory_tier_max`, 0 to 3, says how deep to look. `salted_etag` needs a session.

    Raises FailedPrecondition if no envelope of `accept_tiers` can be packed: `gap` in its metadata says why, in JSON.
    InvalidArgument for a model without a tokenizer, or if nothing is left for the envelope; NotFound for only-if-ckf in
    `cache_control` if no fact is relevant enough.
    """
    question = _question(
        query,
        corpus_ids=corpus_ids,
        budget=pb.TokenBudget(
            model=model,
            tokens=budget_tokens,
            context_window=context_window,
            system_prompt=system_prompt,
            system_prompt_tokens=system_prompt_tokens,
            expected_response_tokens=expected_response_tokens,
            safety_margin_tokens=safety_margin_tokens,
        ),
        filters=filters,
        grounding_mode=grounding_mode,
        scoring=scoring,
        accept_tiers=accept_tiers,
        cache_control=cache_control,
        session_id=session_id,
        exact=exact,
        as_of=as_of,
        rendered=format,
        window_fact_ids=window_fact_ids,
        memory_tier_max=memory_tier_max,
    )
    request = pb.PackEnvelopeRequest(
        tenant_id=id_text(tenant_id), question=question, if_match=if_match, explain=explain, salted_etag=salted_etag
    )
    return Call(f"{_ENVELOPES}PackEnvelope", request, _packed, request_id, timeout_s)


def preview_envelope(
    query: str,
    *,
    corpus_ids: Collection[Id] = (),
    model: str = "",
    budget_tokens: int | None = None,
    context_window: int | None = None,
    system_prompt: str = "",
    system_prompt_tokens: int | None = None,
    expected_response_tokens: int | None = None,
    safety_margin_tokens: int | None = None,
    filters: FactFilter | None = None,
    grounding_mode: GroundingMode = GroundingMode.CONTEXT_PREFERRED,
    scoring: ScoringOptions | None = None,
    accept_tiers: Collection[QualityTier] = (),
    cache_control: str = "",
    session_id: str = "",
    exact: bool = False,
    as_of: AsOf | None = None,
    format: RenderFormat = RenderFormat.MARKDOWN,  # noqa: A002 - the word for it
    window_fact_ids: Collection[Id] = (),
    memory_tier_max: int | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[EnvelopePreview]:
    """What `pack_envelope` would give for the same arguments, without any content. Counts as no access."""

    def decode(answer: bytes) -> EnvelopePreview:
        return convert.preview(pb.PreviewEnvelopeResponse.FromString(answer))

    question = _question(
        query,
        corpus_ids=corpus_ids,
        budget=pb.TokenBudget(
            model=model,
            tokens=budget_tokens,
            context_window=context_window,
            system_prompt=system_prompt,
            system_prompt_tokens=system_prompt_tokens,
            expected_response_tokens=expected_response_tokens,
            safety_margin_tokens=safety_margin_tokens,
        ),
        filters=filters,
        grounding_mode=grounding_mode,
        scoring=scoring,
        accept_tiers=accept_tiers,
        cache_control=cache_control,
        session_id=session_id,
        exact=exact,
        as_of=as_of,
        rendered=format,
        window_fact_ids=window_fact_ids,
        memory_tier_max=memory_tier_max,
    )
    request = pb.PreviewEnvelopeRequest(tenant_id=id_text(tenant_id), question=question)
    return Call(f"{_ENVELOPES}PreviewEnvelope", request, decode, request_id, timeout_s)


def continue_envelope(
    continuation_id: str,
    previous_answer: str = "",
    *,
    explain: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PackedEnvelope]:
    """The next window of a chain: facts that did not fit before, and none twice unless it changed.

    `previous_answer` is what the model said, or a summary of it; it becomes a fact of this window. Raises NotFound if
    there is no such continuation or its session is over.
    """
    request = pb.ContinueEnvelopeRequest(
        tenant_id=id_text(tenant_id),
        continuation_id=continuation_id,
        previous_answer=previous_answer,
        explain=explain,
    )
    return Call(f"{_ENVELOPES}ContinueEnvelope", request, _packed, request_id, timeout_s)


def get_envelope(
    envelope_id: Id,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[IssuedEnvelope]:
    """An envelope that was issued, built again as of its revisions and compared with what was issued then."""

    def decode(answer: bytes) -> IssuedEnvelope:
        return convert.issued(pb.GetEnvelopeResponse.FromString(answer))

    request = pb.GetEnvelopeRequest(tenant_id=id_text(tenant_id), envelope_id=id_text(envelope_id))
    return Call(f"{_ENVELOPES}GetEnvelope", request, decode, request_id, timeout_s)


def _question(
    query: str,
    *,
    corpus_ids: Collection[Id],
    budget: pb.TokenBudget,
    filters: FactFilter | None,
    grounding_mode: GroundingMode,
    scoring: ScoringOptions | None,
    accept_tiers: Collection[QualityTier],
    cache_control: str,
    session_id: str,
    exact: bool,
    as_of: AsOf | None,
    rendered: RenderFormat,
    window_fact_ids: Collection[Id],
    memory_tier_max: int | None,
) -> pb.EnvelopeQuestion:
    return pb.EnvelopeQuestion(
        query=query,
        corpus_ids=map(id_text, corpus_ids),
        filters=None if filters is None else _convert_facts.filters_message(filters),
        budget=budget,
        grounding_mode=convert.grounding_message(grounding_mode),
        scoring=convert.scoring_message(scoring),
        accept_tiers=map(convert.tier_message, accept_tiers),
        cache_control=cache_control,
        session_id=session_id,
        exact=exact,
        as_of=_convert_nodes.as_of_message(as_of),
        format=convert.format_message(rendered),
        window_fact_ids=map(id_text, window_fact_ids),
        memory_tier_max=memory_tier_max,
    )


def _packed(answer: bytes) -> PackedEnvelope:
    return convert.packed(pb.PackEnvelopeResponse.FromString(answer))

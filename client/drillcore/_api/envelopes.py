"""Context envelopes: packing, previewing, continuing and reading them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection
from typing import Final, ParamSpec, cast

from drillcore._api.envelope_data import (
    EnvelopePreview,
    GroundingMode,
    IssuedEnvelope,
    PackedEnvelope,
    QualityTier,
    RenderFormat,
    ScoringOptions,
)
from drillcore._api.envelope_messages import (
    scoring_message,
    to_issued,
    to_packed,
    to_preview,
)
from drillcore._api.fact_data import EVERY_FACT, FactFilter, filters_message
from drillcore._api.messages import AsOf, as_of_message, enum_number
from drillcore._transport.call import Call, Id, id_text
from drillcore_proto.v1 import envelopes_pb2 as pb

P = ParamSpec("P")

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
    filters: FactFilter = EVERY_FACT,
    grounding_mode: GroundingMode = GroundingMode.CONTEXT_PREFERRED,
    scoring: ScoringOptions | None = None,
    accept_tiers: Collection[QualityTier] = (),
    cache_control: str = "",
    session_id: str = "",
    if_match: str = "",
    explain: bool = False,
    exact: bool = False,
    as_of: AsOf | None = None,
    format: RenderFormat = RenderFormat.MARKDOWN,  # noqa: A002 - the usual name
    window_fact_ids: Collection[Id] = (),
    memory_tier_max: int | None = None,
    salted_etag: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PackedEnvelope]:
    """The facts that a language model should see for a query, within a budget of tokens. Counts as an access of each.

    The budget is `budget_tokens`. Without it, the budget is what remains of the context window after the system prompt,
    the query, the expected response (2,048 tokens) and the safety margin (512 tokens). The window is that of `model`,
    unless `context_window` is given. `model` also chooses the tokenizer. Without `corpus_ids` the server searches all
    corpora that the caller may read, including shared ones.

    `if_match` is the etag or id of an envelope you have: if it is current, the server says so and sends no envelope.
    `explain` lists every candidate. `exact` compares every vector. Facts in `window_fact_ids` are in the caller's
    window already and are not packed again. `memory_tier_max`, 0 to 3, is the deepest memory tier to search.
    `salted_etag` needs a session.

    Raises FailedPrecondition if no envelope of `accept_tiers` can be packed: `gap` in its metadata says why, in JSON.
    Raises InvalidArgument if the model has no tokenizer or the budget is empty; NotFound if `cache_control` has
    only-if-ckf and no fact is relevant enough.
    """
    question = pb.EnvelopeQuestion(
        query=query,
        corpus_ids=map(id_text, corpus_ids),
        filters=filters_message(filters) if _is_given(filters) else None,
        budget=pb.TokenBudget(
            model=model,
            tokens=budget_tokens,
            context_window=context_window,
            system_prompt=system_prompt,
            system_prompt_tokens=system_prompt_tokens,
            expected_response_tokens=expected_response_tokens,
            safety_margin_tokens=safety_margin_tokens,
        ),
        grounding_mode=enum_number(pb.GroundingMode, grounding_mode),
        scoring=scoring_message(scoring),
        accept_tiers=[enum_number(pb.QualityTier, tier) for tier in accept_tiers],
        cache_control=cache_control,
        session_id=session_id,
        exact=exact,
        as_of=as_of_message(as_of),
        format=enum_number(pb.RenderFormat, format),
        window_fact_ids=map(id_text, window_fact_ids),
        memory_tier_max=memory_tier_max,
    )
    request = pb.PackEnvelopeRequest(
        tenant_id=id_text(tenant_id), question=question, if_match=if_match, explain=explain, salted_etag=salted_etag
    )
    return Call(f"{_ENVELOPES}PackEnvelope", request, _packed, request_id, timeout_s)


def _previewed(pack: Callable[P, Call[PackedEnvelope]]) -> Callable[P, Call[EnvelopePreview]]:
    """The function that previews what `pack` would give. It takes exactly the arguments of `pack`."""

    def preview_envelope(*args: P.args, **kwargs: P.kwargs) -> Call[EnvelopePreview]:
        """What `pack_envelope` would give for the same arguments, without any content. It counts as no access.

        `if_match`, `explain` and `salted_etag` have no effect here.
        """
        packing = pack(*args, **kwargs)
        packed = cast(pb.PackEnvelopeRequest, packing.request)
        request = pb.PreviewEnvelopeRequest(tenant_id=packed.tenant_id, question=packed.question)
        return Call(f"{_ENVELOPES}PreviewEnvelope", request, _preview, packing.request_id, packing.timeout_s)

    signature = inspect.signature(pack).replace(return_annotation="Call[EnvelopePreview]")
    preview_envelope.__signature__ = signature  # type: ignore[attr-defined]  # inspect and help() read it
    return preview_envelope


preview_envelope = _previewed(pack_envelope)


def continue_envelope(
    continuation_id: str,
    previous_answer: str = "",
    *,
    explain: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PackedEnvelope]:
    """The next window of a chain: facts that did not fit before. A fact appears twice only if it has changed.

    `previous_answer` is the model's answer or a summary of it. It becomes a fact of this window. Raises NotFound if
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
    """An issued envelope, built again at its revisions and compared with the original."""

    def decode(answer: bytes) -> IssuedEnvelope:
        return to_issued(pb.GetEnvelopeResponse.FromString(answer))

    request = pb.GetEnvelopeRequest(tenant_id=id_text(tenant_id), envelope_id=id_text(envelope_id))
    return Call(f"{_ENVELOPES}GetEnvelope", request, decode, request_id, timeout_s)


def _is_given(filters: FactFilter) -> bool:
    return any(getattr(filters, field.name) for field in dataclasses.fields(filters))


def _preview(answer: bytes) -> EnvelopePreview:
    return to_preview(pb.PreviewEnvelopeResponse.FromString(answer))


def _packed(answer: bytes) -> PackedEnvelope:
    return to_packed(pb.PackEnvelopeResponse.FromString(answer))

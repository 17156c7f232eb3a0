"""Facts as a client gives them, and what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from drillcore_proto.reasons import Reason
from drillcore_server.facts.model import FACTS_MAX, LOCATION_CHARACTERS_MAX, TOKENS_MAX, TOKENS_MIN, check_duration
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.named import checked_metadata
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, FactId, NodeId, SourceId, Span


@dataclass(frozen=True, slots=True)
class FactDraft:
    content: str
    source: SourceId
    """Empty where the chunk says it."""
    id: FactId | None = None
    source_location: str = ""
    importance: float | None = None
    ttl: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    chunk: NodeId | None = None
    span: Span | None = None
    embedding: tuple[float, ...] = ()


def check_drafts(drafts: Sequence[FactDraft]) -> None:
    """All that can be said of drafts without the store and the tokenizer. Raises `BadInput`, which names the first."""
    if not 0 < len(drafts) <= FACTS_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"put 1 to {FACTS_MAX} facts at once", field="facts")
    seen: set[FactId] = set()
    for place, draft in enumerate(drafts):
        _check_draft(draft, f"facts[{place}]")
        if draft.id is not None and draft.id in seen:
            raise BadInput(Reason.INVALID_ARGUMENT, f"facts[{place}] has the id of another one", field="fact_id")
        seen.update([] if draft.id is None else [draft.id])
    if len({len(draft.embedding) > 0 for draft in drafts}) > 1:
        message = "give the embeddings of all facts, or of none"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding")


def _check_draft(draft: FactDraft, what: str) -> None:
    if draft.chunk is None and not 0 < len(draft.source) <= SOURCE_CHARACTERS_MAX:
        message = f"{what} needs a chunk_id, or a source_id of 1 to {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    if draft.span is not None and (draft.chunk is None or not draft.span.start < draft.span.end):
        raise BadInput(Reason.INVALID_ARGUMENT, f"{what}: a span is of a chunk, and is not empty", field="span")
    check_importance(draft.importance, what)
    check_location(draft.source_location, what)
    if draft.ttl:
        check_duration(draft.ttl, "ttl")
    checked_metadata(draft.metadata)


def check_importance(importance: float | None, what: str) -> None:
    if importance is not None and not (math.isfinite(importance) and 0 <= importance <= 1):
        message = f"{what}: importance_weight is a number from 0 to 1"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="importance_weight")


def check_location(location: str, what: str) -> None:
    if len(location) > LOCATION_CHARACTERS_MAX:
        message = f"{what}: source_location has over {LOCATION_CHARACTERS_MAX} characters"
        raise BadInput(Reason.TOO_LARGE, message, field="source_location")


def check_tokens(tokens: int, what: str) -> None:
    if tokens < TOKENS_MIN:
        message = f"{what} has {tokens} tokens; a fact has at least {TOKENS_MIN}: say more, or join it to another"
        raise BadInput(Reason.FACT_TOO_SHORT, message, field="content")
    if tokens > TOKENS_MAX:
        message = f"{what} has {tokens} tokens; a fact has at most {TOKENS_MAX}: add it as a document instead"
        raise BadInput(Reason.FACT_TOO_LONG, message, field="content")

"""How many tokens an envelope may have: said outright, or what is left of a context window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.envelopes import Budget
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.rendering import Count

EXPECTED_RESPONSE_TOKENS: Final = 2_048
SAFETY_MARGIN_TOKENS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRequest:
    """What a caller says of it. Raises BadInput for numbers that cannot be meant."""

    tokens: int | None = None
    """Outright: nothing is taken off, and the rest is not looked at."""
    context_window: int | None = None
    """Instead of the model's own."""
    system_prompt: str = ""
    system_prompt_tokens: int | None = None
    """Of the caller's own prompt, instead of counting it."""
    expected_response_tokens: int = EXPECTED_RESPONSE_TOKENS
    safety_margin_tokens: int = SAFETY_MARGIN_TOKENS

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                message = f"budget.{name} must be {least} or more, not {value}"
                raise BadInput(Reason.INVALID_ARGUMENT, message, field=f"budget.{name}")


_LEAST: Final = {
    "tokens": 1,
    "context_window": 1,
    "system_prompt_tokens": 0,
    "expected_response_tokens": 0,
    "safety_margin_tokens": 0,
}


def token_budget(
    asked: BudgetRequest, *, query: str, instruction: str, model: str, model_window: int | None, count: Count
) -> Budget:
    """The budget and what it comes from. Raises BadInput if nobody said how large it is, or if nothing is left."""
    if asked.tokens is not None:
        return Budget(asked.tokens)
    window = asked.context_window or model_window
    if window is None:
        message = f"the model {model} has no known context window: give budget.tokens or budget.context_window"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="budget.context_window")
    own = asked.system_prompt_tokens
    prompt = (count(asked.system_prompt) if own is None else own) + count(instruction)
    return _left(window, prompt, count(query), asked.expected_response_tokens, asked.safety_margin_tokens)


def _left(window: int, prompt: int, query: int, response: int, margin: int) -> Budget:
    left = window - prompt - query - response - margin
    if left > 0:
        return Budget(left, window, prompt, query, response, margin)
    message = (
        f"nothing is left of the context window for the envelope: {window} tokens, less {prompt} for the system prompt "
        f"with the grounding instruction, {query} for the query, {response} for the expected response and {margin} as "
        f"safety margin, is {left}"
    )
    raise BadInput(
        Reason.BUDGET_TOO_SMALL,
        message,
        context_window=str(window),
        system_prompt=str(prompt),
        query=str(query),
        expected_response=str(response),
        safety_margin=str(margin),
    )

"""The token budget: what a context window leaves for an envelope, and the refusal if nothing is left."""

from __future__ import annotations

from typing import Any

import pytest

from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.envelope_text import GROUNDING_INSTRUCTIONS
from drillcore_server.envelopes.model import Budget, GroundingMode
from drillcore_server.envelopes.token_packer import BudgetRequest, token_budget
from drillcore_server.kernel.errors import BadInput
from drillcore_server.tokenizers.encodings import token_counter

STRICT = GROUNDING_INSTRUCTIONS[GroundingMode.CONTEXT_STRICT]
QUERY = "Which records are kept, and for how long?"
count = token_counter().count


def budget(asked: BudgetRequest, query: str = QUERY, instruction: str = STRICT, window: int | None = 8_192) -> Budget:
    return token_budget(asked, query=query, instruction=instruction, model="gpt-4", model_window=window, count=count)


def refusal(**asked: Any) -> BadInput:
    with pytest.raises(BadInput) as refused:
        budget(BudgetRequest(**asked))
    return refused.value


def test_a_number_of_tokens_is_taken_as_it_is() -> None:
    assert budget(BudgetRequest(tokens=1_000, system_prompt="Be kind."), window=None) == Budget(1_000)


def test_the_budget_is_what_the_window_leaves() -> None:
    found = budget(BudgetRequest(system_prompt="Be kind."))
    prompt = count("Be kind.") + count(STRICT)
    assert found == Budget(8_192 - prompt - count(QUERY) - 2_048 - 512, 8_192, prompt, count(QUERY), 2_048, 512)


def test_without_an_instruction_only_the_prompt_is_counted() -> None:
    assert budget(BudgetRequest(system_prompt="Be kind."), instruction="").system_prompt == count("Be kind.")


def test_the_callers_own_window_and_counts_win() -> None:
    asked = BudgetRequest(
        context_window=1_000,
        system_prompt="Be kind.",
        system_prompt_tokens=100,
        expected_response_tokens=0,
        safety_margin_tokens=0,
    )
    assert budget(asked, query="").tokens == 1_000 - 100 - count(STRICT)


@pytest.mark.parametrize("name", ["tokens", "context_window"])
@pytest.mark.parametrize("value", [0, -1])
def test_zero_and_less_is_refused_by_name(name: str, value: int) -> None:
    refused = refusal(**{name: value})
    assert refused.reason is Reason.INVALID_ARGUMENT
    assert f"budget.{name} must be 1 or more, not {value}" in refused.message


@pytest.mark.parametrize("name", ["system_prompt_tokens", "expected_response_tokens", "safety_margin_tokens"])
def test_parts_may_be_zero_but_not_negative(name: str) -> None:
    assert budget(BudgetRequest(**{name: 0})).tokens > 0  # type: ignore[arg-type]
    assert f"budget.{name}" in refusal(**{name: -1}).message


def test_a_window_that_is_used_up_is_refused_with_all_its_parts() -> None:
    refused = refusal(context_window=2_600, system_prompt_tokens=70)
    assert refused.reason is Reason.BUDGET_TOO_SMALL
    for tokens in (2_600, 70 + count(STRICT), count(QUERY), 2_048, 512):
        assert f"{tokens} " in refused.message
    assert refused.details["query"] == str(count(QUERY))


def test_a_query_larger_than_the_window_is_refused() -> None:
    with pytest.raises(BadInput, match="100000 for the query"):
        budget(BudgetRequest(), query="word " * 99_999 + "word")


def test_a_model_without_a_known_window_needs_a_budget() -> None:
    with pytest.raises(BadInput, match=r"gpt-4 has no known context window: give budget\.tokens"):
        budget(BudgetRequest(), window=None)

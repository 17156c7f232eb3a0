"""Computes the token budget of an envelope, and packs ranked facts into it.

The packed facts stand in the order that a model reads best. While packing, the best of the facts that share an
introduction is charged for it; in the text, the first of them shows it. Both take nearly the same number of tokens,
and the whole text is counted at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.envelope_text import (
    CountTokens,
    FactText,
    Introduction,
    Introductions,
    frame,
    part,
    render,
)
from drillcore_server.envelopes.model import Budget, Candidate, Packed, Packing, Ranked, RenderFormat
from drillcore_server.kernel.errors import BadInput

EXPECTED_RESPONSE_TOKENS: Final = 2_048
SAFETY_MARGIN_TOKENS: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRequest:
    """The budget that a caller asks for. Raises `BadInput` for a number that is too small."""

    tokens: int | None = None
    """The budget itself. Nothing is subtracted, and the other fields are ignored."""
    context_window: int | None = None
    """Replaces the context window of the model."""
    system_prompt: str = ""
    system_prompt_tokens: int | None = None
    """The tokens of the caller's prompt, if the caller has counted them."""
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
    asked: BudgetRequest, *, query: str, instruction: str, model: str, model_window: int | None, count: CountTokens
) -> Budget:
    """Returns the budget and how it was computed.

    Raises `BadInput` if neither the caller nor the model says how large the window is, or if nothing of it is left.
    """
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


CRITICAL_COMPOSITE: Final = 0.80
"""From this composite score on, a fact is placed as critical."""
IMPORTANT_COMPOSITE: Final = 0.50
"""From this composite score on, it is placed as important; below, as supporting."""
_REFERENCE_SPARE_TOKENS: Final = 4
"""The tokens that a reference may cost besides its own: the line end after the introduction, and words split there."""


def pack(
    kept: Sequence[Ranked],
    budget_tokens: int,
    count: CountTokens,
    form: RenderFormat,
    at_least: CountTokens | None = None,
) -> Packing:
    """Packs as many facts as fit. Tries them in the given order, best first, and skips a fact that is too large.

    The text never has more tokens than the budget. If it would, because the counts of the parts do not add up to the
    count of the whole, the last facts that fitted are left out. `at_least` is a fast lower bound of `count`. It saves
    time for parts that are too large, and makes `wanted` less exact.
    """
    if not kept:
        return Packing((), (), 0, "")
    room = _Room(budget_tokens, count, at_least or _no_lower_bound, form, _silent(kept[0].candidate))
    introductions = Introductions([ranked.candidate for ranked in kept], _is_worth(room))
    tried = _tried(kept, introductions, room)
    chosen = [place for place, tried_part in tried.items() if tried_part.shown is not None]
    while chosen:
        order = reading_order(chosen, kept)
        shown_facts = introductions.texts([kept[place].candidate for place in order])
        text = render(shown_facts, form)
        tokens = count(text)
        if tokens <= budget_tokens:
            break
        chosen.pop()
    else:
        order, shown_facts, text, tokens = [], [], "", 0
    tokens_of_number = cache(lambda number: count(str(number)))
    left_out = sorted(set(range(len(kept))).difference(chosen))
    return Packing(
        included=tuple(
            Packed(kept[place], shown.number, tried[place].tokens_as(shown, room, tokens_of_number))
            for place, shown in zip(order, shown_facts, strict=True)
        ),
        excluded=tuple(kept[place] for place in left_out),
        tokens=tokens,
        text=text,
        wanted=tuple(tried[place].tokens if place in tried else 0 for place in left_out),
    )


def reading_order(places: Sequence[int], kept: Sequence[Ranked]) -> list[int]:
    """Reorders places, given best first, so that the best facts stand where a model attends most: at both ends.

    The two best critical facts come first, then supporting facts, then important facts, then the other critical facts.
    """
    critical = [place for place in places if kept[place].composite >= CRITICAL_COMPOSITE]
    important = [place for place in places if IMPORTANT_COMPOSITE <= kept[place].composite < CRITICAL_COMPOSITE]
    supporting = [place for place in places if kept[place].composite < IMPORTANT_COMPOSITE]
    return [*critical[:2], *supporting, *important, *critical[2:]]


@dataclass(frozen=True, slots=True)
class _Room:
    """The budget into which facts are packed, and how their tokens are counted."""

    budget_tokens: int
    count: CountTokens
    at_least: CountTokens
    form: RenderFormat
    silent: Candidate
    """A fact without words, to count what surrounds a fact in the text."""


@dataclass(frozen=True, slots=True)
class _TriedPart:
    """The part of the text that a fact took when it was tried."""

    tokens: int
    shown: FactText | None = None
    """None: the fact did not fit."""

    def tokens_as(self, shown: FactText, room: _Room, tokens_of_number: Callable[[int], int]) -> int:
        """Returns the tokens of the fact as the finished text shows it. Counts again only if its words differ."""
        assert self.shown is not None, "a fact that did not fit is in no text"
        if shown.begins_as or shown.words != self.shown.words:
            return room.count(part(shown, room.form))
        return self.tokens + tokens_of_number(shown.number) - tokens_of_number(self.shown.number)


def _tried(kept: Sequence[Ranked], introductions: Introductions, room: _Room) -> dict[int, _TriedPart]:
    """Tries facts by their place in `kept`, until no further fact can fit.

    Facts are numbered by rank here and by their order in the text later. Both use the same numbers, and so the same
    number of tokens.
    """
    tried: dict[int, _TriedPart] = {}
    first: dict[Introduction, int] = {}
    left, number = room.budget_tokens - sum(map(room.count, frame(room.form))), 1
    smallest = room.count(part(FactText(room.silent, 1), room.form))
    for place, ranked in enumerate(kept):
        if left < smallest:
            break
        introduction = introductions.of(ranked.candidate)
        begins_as = first.get(introduction, 0) if introduction else 0
        shown = FactText(ranked.candidate, number, begins_as, introduces=introduction is not None)
        tried[place] = tried_part = _try(shown, left, room)
        if tried_part.shown:
            left, number = left - tried_part.tokens, number + 1
            if introduction:
                first.setdefault(introduction, shown.number)
    return tried


def _try(shown: FactText, left: int, room: _Room) -> _TriedPart:
    text = part(shown, room.form)
    least = room.at_least(text)
    if least > left:
        return _TriedPart(least)
    tokens = room.count(text)
    return _TriedPart(tokens, shown if tokens <= left else None)


def _is_worth(room: _Room) -> Callable[[str], bool]:
    """Returns a rule: whether an introduction takes more tokens than a reference to it, for any numbers and words."""
    alone, referring = (room.count(part(FactText(room.silent, 999, begins_as), room.form)) for begins_as in (0, 998))
    return lambda lead: room.count(lead) > referring - alone + _REFERENCE_SPARE_TOKENS


def _silent(fact: Candidate) -> Candidate:
    return replace(fact, content="", lead="", stale=False, is_answer=False)


def _no_lower_bound(_: str) -> int:
    return 0

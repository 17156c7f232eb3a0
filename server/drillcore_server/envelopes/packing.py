"""How many tokens an envelope may have: said outright, or what is left of a context window.

Ranked facts into a budget of tokens: what fits, in the order that a model reads best, and the text of it.

What introduces several facts is paid for by the best of them, and said by the first of them in the text: nearly the
same tokens, and the whole text is counted in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.model import Budget, Candidate, Packed, Packing, Ranked, RenderFormat
from drillcore_server.envelopes.rendering import Count, Introduction, Introductions, Said, frame, part, render
from drillcore_server.kernel.errors import BadInput

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


CRITICAL_COMPOSITE: Final = 0.80
IMPORTANT_COMPOSITE: Final = 0.50
_REFERRING_SPARE_TOKENS: Final = 4
"""What a reference may take beside itself: the line end after the introduction, and words cut apart there."""


def pack(
    kept: Sequence[Ranked], budget_tokens: int, count: Count, form: RenderFormat, at_least: Count | None = None
) -> Packing:
    """As many of the facts as fit, tried in the order given, which is that of their rank; one too large is skipped.

    The text never has more tokens than the budget. Where counts of parts do not add up to that of the whole, the last
    of those that fitted are left out until it does. `at_least` may know quickly that a part is too large: that saves
    time, and `wanted` is then less exact.
    """
    if not kept:
        return Packing((), (), 0, "")
    room = _Room(budget_tokens, count, at_least or _nothing, form, _silent(kept[0].candidate))
    introductions = Introductions([one.candidate for one in kept], _is_worth(room))
    tried = _tried(kept, introductions, room)
    chosen = [place for place, part_of in tried.items() if part_of.said is not None]
    while chosen:
        order = in_order(chosen, kept)
        told = introductions.told([kept[place].candidate for place in order])
        text = render(told, form)
        tokens = count(text)
        if tokens <= budget_tokens:
            break
        chosen.pop()
    else:
        order, told, text, tokens = [], [], "", 0
    of_number = cache(lambda number: count(str(number)))
    left_out = sorted(set(range(len(kept))).difference(chosen))
    return Packing(
        included=tuple(
            Packed(kept[place], said.number, tried[place].tokens_as(said, room, of_number))
            for place, said in zip(order, told, strict=True)
        ),
        excluded=tuple(kept[place] for place in left_out),
        tokens=tokens,
        text=text,
        wanted=tuple(tried[place].tokens if place in tried else 0 for place in left_out),
    )


def in_order(places: Sequence[int], kept: Sequence[Ranked]) -> list[int]:
    """The places, given best first, so that the best facts stand where a model attends most: at both ends.

    The two best of the critical facts, then supporting and important ones, then the rest of the critical.
    """
    critical = [place for place in places if kept[place].composite >= CRITICAL_COMPOSITE]
    important = [place for place in places if IMPORTANT_COMPOSITE <= kept[place].composite < CRITICAL_COMPOSITE]
    supporting = [place for place in places if kept[place].composite < IMPORTANT_COMPOSITE]
    return [*critical[:2], *supporting, *important, *critical[2:]]


@dataclass(frozen=True, slots=True)
class _Room:
    """What facts are tried in."""

    budget_tokens: int
    count: Count
    at_least: Count
    form: RenderFormat
    silent: Candidate
    """A fact that says nothing."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What a fact takes of the text, as it was tried; None: it did not fit."""

    tokens: int
    said: Said | None = None

    def tokens_as(self, said: Said, room: _Room, of_number: Callable[[int], int]) -> int:
        """As the text says it in the end."""
        assert self.said is not None, "what did not fit is in no text"
        if said.begins_as or said.words != self.said.words:
            return room.count(part(said, room.form))
        return self.tokens + of_number(said.number) - of_number(self.said.number)


def _tried(kept: Sequence[Ranked], introductions: Introductions, room: _Room) -> dict[int, _Part]:
    """Each fact by its place, until no further one can fit.

    Numbers are given in the order of rank here and in that of the text later: the same numbers, so the same tokens.
    """
    tried: dict[int, _Part] = {}
    first: dict[Introduction, int] = {}
    left, number = room.budget_tokens - sum(map(room.count, frame(room.form))), 1
    smallest = room.count(part(Said(room.silent, 1), room.form))
    for place, ranked in enumerate(kept):
        if left < smallest:
            break
        introduction = introductions.of(ranked.candidate)
        begins_as = first.get(introduction, 0) if introduction else 0
        said = Said(ranked.candidate, number, begins_as, introduces=introduction is not None)
        tried[place] = fitted = _try(said, left, room)
        if fitted.said:
            left, number = left - fitted.tokens, number + 1
            if introduction:
                first.setdefault(introduction, said.number)
    return tried


def _try(said: Said, left: int, room: _Room) -> _Part:
    text = part(said, room.form)
    least = room.at_least(text)
    if least > left:
        return _Part(least)
    tokens = room.count(text)
    return _Part(tokens, said if tokens <= left else None)


def _is_worth(room: _Room) -> Callable[[str], bool]:
    """Whether an introduction takes more than a reference to it, whatever the numbers and the words after it."""
    alone, referring = (room.count(part(Said(room.silent, 999, other), room.form)) for other in (0, 998))
    return lambda lead: room.count(lead) > referring - alone + _REFERRING_SPARE_TOKENS


def _silent(fact: Candidate) -> Candidate:
    return replace(fact, content="", lead="", stale=False, is_answer=False)


def _nothing(_: str) -> int:
    return 0

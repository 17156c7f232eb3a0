"""Ranked facts into a budget of tokens: what fits, in the order that a model reads best, and the text of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from drillcore_server.domain.envelopes import Packed, Packing, Ranked, RenderFormat
from drillcore_server.domain.rendering import Count, frame, part, render

CRITICAL_COMPOSITE: Final = 0.80
IMPORTANT_COMPOSITE: Final = 0.50


def pack(
    kept: Sequence[Ranked], budget_tokens: int, count: Count, form: RenderFormat, at_least: Count | None = None
) -> Packing:
    """As many of the facts as fit, tried in the order given, which is that of their rank; one too large is skipped.

    The text never has more tokens than the budget. Where counts of parts do not add up to that of the whole, the last
    of those that fitted are left out until it does. `at_least` may know quickly that a part is too large: that saves
    time, and `wanted` is then less exact.
    """
    tried = _tried(kept, _Room(budget_tokens, count, at_least or _nothing, form))
    chosen = [place for place, part_of in tried.items() if part_of.number]
    while chosen:
        order = in_order(chosen, kept)
        text = render([kept[place].candidate for place in order], form)
        tokens = count(text)
        if tokens <= budget_tokens:
            break
        chosen.pop()
    else:
        order, text, tokens = [], "", 0
    of_number = cache(lambda number: count(str(number)))
    left_out = sorted(set(range(len(kept))).difference(chosen))
    return Packing(
        included=tuple(
            Packed(kept[place], position, tried[place].tokens_as(position, of_number))
            for position, place in enumerate(order, 1)
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


@dataclass(frozen=True, slots=True)
class _Part:
    """What a fact takes of the text, with the number it was tried with; 0: it did not fit."""

    tokens: int
    number: int = 0

    def tokens_as(self, position: int, of_number: Callable[[int], int]) -> int:
        """With the number that it has in the end."""
        return self.tokens + of_number(position) - of_number(self.number)


def _tried(kept: Sequence[Ranked], room: _Room) -> dict[int, _Part]:
    """Each fact by its place, until no further one can fit.

    Numbers are given in the order of rank here and in that of the text later: the same numbers, so the same tokens.
    """
    tried: dict[int, _Part] = {}
    left, number = room.budget_tokens - sum(map(room.count, frame(room.form))), 1
    smallest = _smallest(kept, room)
    for place, ranked in enumerate(kept):
        if left < smallest:
            break
        tried[place] = fitted = _try(part(ranked.candidate, number, room.form), number, left, room)
        if fitted.number:
            left, number = left - fitted.tokens, number + 1
    return tried


def _try(text: str, number: int, left: int, room: _Room) -> _Part:
    least = room.at_least(text)
    if least > left:
        return _Part(least)
    tokens = room.count(text)
    return _Part(tokens, number if tokens <= left else 0)


def _smallest(kept: Sequence[Ranked], room: _Room) -> int:
    """What a fact would take that says nothing."""
    if not kept:
        return 0
    silent = replace(kept[0].candidate, content="", stale=False, is_answer=False)
    return room.count(part(silent, 1, room.form))


def _nothing(_: str) -> int:
    return 0

"""Whatever the facts, the tokenizer and the format: the budget holds, the count is right, and no fact is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.envelopes.envelope_text import FactText, frame, part
from drillcore_server.envelopes.model import Packing, Ranked, RenderFormat
from drillcore_server.envelopes.token_packer import pack, reading_order
from drillcore_server.tokenizers.encodings import EncodingName, ModelTokenizer, token_counter
from tests.support.data.ranked_facts import NASTY, ranked, ranking
from tests.support.data.rendered_facts import as_shown, read, whole
from tests.support.data.tokenizer_files import SENTENCES, file_tokenizers

TOKENIZERS = [*(name.value for name in EncodingName), "llama", "byte level", "unigram", "bpe"]
CONTENTS = st.lists(st.one_of(st.sampled_from(NASTY), st.sampled_from(SENTENCES), st.text(max_size=80)), max_size=25)
SCORES = st.sampled_from([0.1, 0.4999, 0.5, 0.6, 0.7999, 0.8, 0.9, 1.0])

every_format = pytest.mark.parametrize("form", RenderFormat)
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


def tokenizer(name: str) -> ModelTokenizer:
    return file_tokenizers()[name] if name in file_tokenizers() else token_counter(EncodingName(name))


@st.composite
def rankings(draw: st.DrawFn) -> list[Ranked]:
    contents = draw(CONTENTS)
    scores = draw(st.lists(SCORES, min_size=len(contents), max_size=len(contents)))
    return [
        replace(ranked, candidate=replace(ranked.candidate, stale=draw(st.booleans())))
        for ranked in ranking(contents, scores)
    ]


def ids(facts: list[Ranked]) -> list[int]:
    return [fact.candidate.id.int for fact in facts]


@every_format
@every_tokenizer
@settings(deadline=None)
@given(kept=rankings(), budget=st.integers(0, 600))
def test_the_budget_holds_and_the_count_is_that_of_the_text(
    name: str, form: RenderFormat, kept: list[Ranked], budget: int
) -> None:
    counter = tokenizer(name)
    packing = pack(kept, budget, counter.count, form, counter.at_least)
    assert packing.tokens == counter.count(packing.text) <= budget
    included = [packed.ranked for packed in packing.included]
    contents = [as_shown(fact.candidate.content, form) for fact in included]
    assert whole(read(packing.text, form)) == contents
    assert sorted(ids([*included, *packing.excluded])) == ids(kept)
    assert ids(list(packing.excluded)) == sorted(ids(list(packing.excluded)))
    assert len(packing.wanted) == len(packing.excluded)
    assert [packed.position for packed in packing.included] == list(range(1, len(included) + 1))
    best_first = by_rank(included)
    assert included == [best_first[place] for place in reading_order(range(len(included)), best_first)]


def by_rank(facts: list[Ranked]) -> list[Ranked]:
    return sorted(facts, key=lambda fact: fact.candidate.id)


@every_format
@pytest.mark.parametrize("name", list(EncodingName))
@settings(deadline=None)
@given(kept=rankings(), budget=st.integers(0, 600))
def test_the_packing_is_the_greedy_choice_of_the_specification(
    name: EncodingName, form: RenderFormat, kept: list[Ranked], budget: int
) -> None:
    """With tiktoken's encodings counts add up, so that no fact has to be left out afterwards."""
    counter = token_counter(name)
    used, expected = sum(map(counter.count, frame(form))), []
    for fact in kept:
        tokens = counter.count(part(FactText(fact.candidate, len(expected) + 1), form))
        if used + tokens <= budget:
            expected.append(fact)
            used += tokens
    packing = pack(kept, budget, counter.count, form)
    assert by_rank([packed.ranked for packed in packing.included]) == expected
    assert packing == with_bound(kept, budget, counter, form, packing)
    for packed in packing.included:
        assert packed.tokens == counter.count(part(FactText(packed.ranked.candidate, packed.position), form))


def with_bound(kept: list[Ranked], budget: int, counter: ModelTokenizer, form: RenderFormat, plain: Packing) -> Packing:
    """The packing with a counter that may reject a part as too large before it counts; `wanted` is then less exact."""
    found = pack(kept, budget, counter.count, form, counter.at_least)
    assert all(bound <= tokens for bound, tokens in zip(found.wanted, plain.wanted, strict=True))
    return Packing(found.included, found.excluded, found.tokens, found.text, plain.wanted)


@given(scores=st.lists(SCORES, max_size=12))
def test_each_fact_has_one_place_in_the_order(scores: list[float]) -> None:
    kept = ranking(["Text."] * len(scores), scores)
    assert sorted(reading_order(range(len(kept)), kept)) == list(range(len(kept)))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([], []),
        ([0.9], [0]),
        ([0.4], [0]),
        ([0.9, 0.7, 0.6, 0.4, 0.3], [0, 3, 4, 1, 2]),
        ([0.9, 0.8, 0.7, 0.4], [0, 1, 3, 2]),
        ([0.95, 0.9, 0.85, 0.8, 0.79, 0.5, 0.49], [0, 1, 6, 4, 5, 2, 3]),
    ],
)
def test_the_best_facts_stand_at_both_ends(scores: list[float], expected: list[int]) -> None:
    assert reading_order(range(len(scores)), ranking(["Text."] * len(scores), scores)) == expected


@every_format
@every_tokenizer
def test_little_of_the_budget_is_left_if_there_are_enough_facts(name: str, form: RenderFormat) -> None:
    counter = tokenizer(name)
    kept = ranking(SENTENCES)
    smallest = min(counter.count(part(FactText(ranked.candidate, 99), form)) for ranked in kept)
    packing = pack(kept, 2_000, counter.count, form, counter.at_least)
    assert 2_000 - packing.tokens < smallest + 3
    assert packing.excluded


@every_format
def test_more_than_999_facts_stay_within_the_budget(form: RenderFormat) -> None:
    counter = token_counter()
    kept = ranking(SENTENCES * 3)
    packing = pack(kept, 10**6, counter.count, form, counter.at_least)
    assert len(packing.included) == len(kept)
    assert packing.tokens == counter.count(packing.text)
    again = pack(kept, packing.tokens, counter.count, form, counter.at_least)
    assert len(again.included) >= len(kept) - 1


@every_format
@pytest.mark.parametrize("name", [*(name.value for name in EncodingName), "byte level"])
def test_a_facts_tokens_are_those_of_its_own_part_whatever_its_number(name: str, form: RenderFormat) -> None:
    counter = tokenizer(name)
    kept = ranking(SENTENCES * 3)
    for packed in pack(kept, 10**6, counter.count, form).included:
        assert packed.tokens == counter.count(part(FactText(packed.ranked.candidate, packed.position), form))


@every_format
def test_the_count_of_the_whole_text_decides_if_the_parts_do_not_add_up(form: RenderFormat) -> None:
    def dearer_when_long(text: str) -> int:
        return len(text) ** 2 // 1_000

    kept = ranking(SENTENCES[:50])
    packing = pack(kept, 500, dearer_when_long, form)
    assert dearer_when_long(packing.text) == packing.tokens <= 500
    assert packing.included
    assert ids(by_rank([packed.ranked for packed in packing.included])) == list(range(1, len(packing.included) + 1))


@every_format
def test_a_budget_smaller_than_any_fact_gives_an_empty_packing(form: RenderFormat) -> None:
    kept = ranking(SENTENCES[:3])
    packing = pack(kept, 5, token_counter().count, form)
    assert (packing.included, packing.excluded, packing.tokens, packing.text) == ((), tuple(kept), 0, "")


@every_format
def test_no_facts_give_an_empty_packing(form: RenderFormat) -> None:
    assert pack([], 100, token_counter().count, form) == Packing((), (), 0, "")


def test_a_smaller_fact_may_fit_after_a_larger_one_did_not() -> None:
    kept = [ranked("Short one.", 0.9, 1), ranked("long " * 200, 0.8, 2), ranked("Short two.", 0.7, 3)]
    packing = pack(kept, 40, token_counter().count, RenderFormat.MARKDOWN)
    assert packing.text == "[1] Short one.\n[2] Short two."
    assert packing.wanted == (token_counter().count("[2] " + "long " * 200 + "\n"),)

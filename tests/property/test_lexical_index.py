"""Lexical indexes against a plain model: facts are added, changed and removed in any order, and each state is compared.

A state has the same scores, to the last bit, whatever its history: as if it were made of its facts at once.
"""

from __future__ import annotations

from uuid import UUID

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from drillcore_server.facts.lexical import lexical_index
from drillcore_server.facts.lexical.lexical_index import LexicalIndex
from drillcore_server.facts.words import FactWords, Question, Term, encode_words, pairs
from drillcore_server.storage.ids import FactId
from tests.support.data.plain_lexical_index import WORDS, passage_of, plain_pairs, plain_scores, plain_titles, words

NUMBERS = st.lists(st.integers(0, 40), max_size=12, unique=True)
ASKED = Question((*WORDS[1:], Term(77)), tuple(dict.fromkeys(pairs([WORDS[0], WORDS[3], WORDS[6], WORDS[0]]))))
"""Words of the facts, and one word that no fact has."""
LEVELS: dict[str, list[str]] = {
    "facts": [],
    "chunks": ["headings", "title"],
    "documents": ["title"],
}


def numbered_id(number: int) -> FactId:
    """Some ids end in zeros, which numpy likes to leave out."""
    return FactId(UUID(int=number << 120 | (number % 3) << 8))


def made(number: int, seed: int) -> FactWords:
    chunk = None if number % 7 == 0 else number // 4
    return words(seed, chunk, None if number % 5 == 0 else number % 4 // 2, document=number // 12)


def index_of(model: dict[FactId, FactWords]) -> LexicalIndex:
    return LexicalIndex.of((fact, encode_words(found)) for fact, found in model.items())


def scores(index: LexicalIndex, level: str, facts: list[FactId]) -> list[float]:
    """The scores of the texts that these facts are in."""
    matches = index.matches(ASKED)
    assert matches is not None
    if level == "titles":
        return at(index, "documents", matches.documents.title_shares(), facts)
    if level == "passage pairs":
        return at(index, "passages", matches.passage_pairs.scores(), facts)
    if level == "chunk pairs":
        return at(index, "chunks", matches.chunk_pairs.scores(), facts)
    return at(index, level, getattr(matches, level).scores(**dict.fromkeys(LEVELS[level], True)), facts)


def at(index: LexicalIndex, level: str, found: npt.NDArray[np.float64], facts: list[FactId]) -> list[float]:
    labels = np.concatenate([index.labels([fact]) for fact in facts])
    numbers = labels if level == "facts" else index.facts[level[:-1]][labels]
    return [float(score) for score in found[numbers]]


def place_of(level: str, fact: FactId, found: FactWords) -> object:
    places = {"facts": fact, "passages": passage_of(fact, found), "chunks": found.chunk or fact}
    return places.get(level, found.document or fact)


class Indexes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(lexical_index, "_GONE_MIN", 3)
        self.states: list[tuple[LexicalIndex, dict[FactId, FactWords]]] = []

    @initialize(numbers=NUMBERS)
    def begin(self, numbers: list[int]) -> None:
        model = {numbered_id(number): made(number, number) for number in numbers}
        self.states.append((index_of(model), model))

    @rule(data=st.data(), came=NUMBERS, gone=NUMBERS, seed=st.integers(0, 1_000))
    def change(self, data: st.DataObject, came: list[int], gone: list[int], seed: int) -> None:
        """Starts from any state, so that several states follow from the same one."""
        index, model = data.draw(st.sampled_from(self.states))
        changes: dict[FactId, FactWords | None] = dict.fromkeys(map(numbered_id, gone))
        changes |= {numbered_id(number): made(number, seed + number) for number in came}
        stored = {fact: None if found is None else encode_words(found) for fact, found in changes.items()}
        after = {fact: found for fact, found in (model | changes).items() if found is not None}
        self.states.append((index.changed(stored), after))

    @rule(data=st.data())
    def compare(self, data: st.DataObject) -> None:
        index, model = data.draw(st.sampled_from(self.states))
        facts = sorted(model)
        if not facts:
            assert index.matches(ASKED) is None or not len(index)
            return
        for level, above in LEVELS.items():
            self._compare(index, model, level, level, plain_scores(model, level, ASKED, *above))
        self._compare(index, model, "titles", "documents", plain_titles(model, ASKED))
        self._compare(index, model, "passage pairs", "passages", plain_pairs(model, ASKED, passage_of))
        by_chunk = plain_pairs(model, ASKED, lambda fact, found: found.chunk or fact)
        self._compare(index, model, "chunk pairs", "chunks", by_chunk)

    def _compare(
        self,
        index: LexicalIndex,
        model: dict[FactId, FactWords],
        measure: str,
        level: str,
        expected: dict[object, float],
    ) -> None:
        facts = sorted(model)
        found = scores(index, measure, facts)
        assert found == pytest.approx([expected[place_of(level, fact, model[fact])] for fact in facts], abs=1e-9)
        assert found == scores(index_of(model), measure, facts), "the scores do not depend on the index's history"

    @rule(data=st.data(), number=st.integers(0, 45))
    def has(self, data: st.DataObject, number: int) -> None:
        index, model = data.draw(st.sampled_from(self.states))
        assert (numbered_id(number) in index) == (numbered_id(number) in model)

    def teardown(self) -> None:
        for index, model in self.states:
            assert len(index) == len(model)
            if model:
                assert sorted(index.ids(np.flatnonzero(index.mask))) == sorted(model)
        self.patch.undo()


TestIndexes = Indexes.TestCase
TestIndexes.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)

"""The policy fused-1: how words and vectors add up to relevance."""

from __future__ import annotations

import numpy as np
import pytest

from drillcore_server.envelopes.scoring_policy import fused_relevance
from drillcore_server.facts.lexical.lexical_index import LexicalIndex
from drillcore_server.facts.lexical.relevance import Cosines, WordShares, by_words, fused
from drillcore_server.facts.words import Question, encode_words
from drillcore_server.storage.ids import FactId, NodeId
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import VectorIndex
from tests.property.test_lexical_index import made, numbered_id
from tests.support.data.plain_lexical_index import WORDS

ASKED = Question(tuple(WORDS), ())


def shares(value: float) -> WordShares:
    return WordShares(*(np.array([value]) for _ in range(6)))


def cosines(value: float) -> Cosines:
    return Cosines(*(np.array([value]) for _ in range(3)))


def test_a_fact_that_answers_everything_is_wholly_relevant_and_one_that_answers_nothing_is_not() -> None:
    assert fused(shares(1), cosines(1)) == pytest.approx(1 / 1.04, abs=1e-6)
    assert fused(shares(0), cosines(0)) == 0
    assert fused(shares(0), cosines(-1)) == 0, "an opposite vector is not relevant, though its square is large"


def test_a_fifth_of_everything_is_half_relevant() -> None:
    assert fused(shares(0.2), cosines(0.2)) == pytest.approx(0.5, abs=1e-6)


def test_words_alone_contribute_their_part_of_the_weights() -> None:
    assert by_words(shares(1)) == pytest.approx(2.2 / 2.6, abs=1e-6)


def indexes(seed: int = 0) -> tuple[LexicalIndex, VectorIndex[FactId], VectorIndex[NodeId]]:
    numbers, dice = range(30), np.random.default_rng(seed)
    words = {numbered_id(number): made(number, number) for number in numbers}
    facts = [(fact, dice.standard_normal(8).astype(np.float16)) for fact in words]
    chunks = {found.chunk: dice.standard_normal(8).astype(np.float16) for found in words.values() if found.chunk}
    return (
        LexicalIndex.of((fact, encode_words(found)) for fact, found in words.items()),
        VectorIndex.of(facts, VectorSettings()),
        VectorIndex.of(chunks.items(), VectorSettings()),
    )


def test_relevance_of_a_fact_does_not_depend_on_the_other_facts() -> None:
    words, facts, chunks = indexes()
    query = np.arange(8, dtype=np.float32) - 3
    wanted = [numbered_id(number) for number in range(30)]
    together = fused_relevance(words, facts, chunks, ASKED, query, wanted)
    assert set(together) == set(wanted)
    assert all(0 <= score <= 1 for score in together.values())
    for fact in wanted:
        assert fused_relevance(words, facts, chunks, ASKED, query, [fact]) == {fact: together[fact]}


def test_a_fact_without_a_chunk_counts_by_its_own_vector() -> None:
    words, facts, chunks = indexes()
    alone = numbered_id(7)
    query = facts.rows([alone])[0]
    found = fused_relevance(words, facts, chunks, Question((), ()), query, [alone])
    expected = fused(shares(0), cosines(1))
    assert found == {alone: pytest.approx(float(expected[0]), abs=1e-5)}


def test_a_fact_without_words_is_not_relevant() -> None:
    words, facts, chunks = indexes()
    found = fused_relevance(words, facts, chunks, ASKED, np.ones(8), [numbered_id(99), numbered_id(1)])
    assert found[numbered_id(99)] == 0 < found[numbered_id(1)]
    assert fused_relevance(LexicalIndex.of([]), facts, chunks, ASKED, np.ones(8), [numbered_id(1)]) == {
        numbered_id(1): 0
    }

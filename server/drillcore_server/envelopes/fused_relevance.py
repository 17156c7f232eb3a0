"""Facts scored by `fused-1`: by their words and surroundings, and by the vectors of their passages and chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drillcore_server.facts.lexical.lexical_index import LexicalIndex
from drillcore_server.facts.lexical.relevance import Cosines, Scores, WordShares, fused
from drillcore_server.facts.lexical.segments import run_starts
from drillcore_server.facts.words import Question
from drillcore_server.storage.ids import FactId, NodeId
from drillcore_server.vectors.vector_index import Id, VectorIndex
from drillcore_server.vectors.vector_log import Labels, Row, Units, units

_NOWHERE = -1.0
"""Less than any cosine."""


def fused_relevance(
    words: LexicalIndex,
    facts: VectorIndex[FactId],
    chunks: VectorIndex[NodeId],
    asked: Question,
    vector: Row,
    wanted: Sequence[FactId],
    shares: WordShares | None = None,
) -> dict[FactId, float]:
    """How relevant facts are to a question, 0 to 1. All three indexes are of the same revision.

    `shares` are those of the question for all labels of `words`, if they are known already.

    A fact that has no chunk any more, or never had one, counts by its passage instead. One that `words` does not have,
    because it was erased meanwhile, is not relevant.
    """
    labels = words.labels(wanted)
    if not len(labels):
        return dict.fromkeys(wanted, 0.0)
    ids = words.ids(labels)
    query: Units = units(np.asarray(vector)[np.newaxis])[0]
    own = _of_nodes(facts, query, ids)
    by_passage = _of_passages(words, facts, query, words.facts["passage"][labels].astype(np.int64))
    chunk_ids = [NodeId(one) for one in words.chunk_ids(words.facts["chunk"][labels])]
    by_chunk = _of_nodes(chunks, query, chunk_ids)
    cosines = Cosines(own, by_passage, np.where(by_chunk == _NOWHERE, by_passage, by_chunk))
    own_shares = words.shares(asked, labels) if shares is None else shares.of(labels)
    scores = fused(own_shares, cosines).tolist()
    return dict.fromkeys(wanted, 0.0) | dict(zip(ids, scores, strict=True))


def _of_passages(words: LexicalIndex, facts: VectorIndex[FactId], query: Units, passages: Labels) -> Scores:
    """The cosine with the mean vector of all facts of each passage."""
    numbers, back = np.unique(passages, return_inverse=True)
    inside = words.inside("passage", numbers)
    inside = inside[np.lexsort((words.facts["id"][inside], words.facts["passage"][inside]))]
    rows = _rows(facts, words.ids(inside), len(query))
    return _cosines(np.add.reduceat(rows, run_starts(words.facts["passage"][inside])), query)[back]


def _rows(index: VectorIndex[Id], ids: Sequence[Id], dimensions: int) -> Scores:
    """Of length 1; zeros for what was erased since the other index was made."""
    there = np.array([one in index for one in ids], np.bool_)
    rows = np.zeros((len(ids), dimensions))
    rows[there] = index.rows([one for one, is_there in zip(ids, there.tolist(), strict=True) if is_there])
    return rows


def _of_nodes(index: VectorIndex[Id], query: Units, ids: Sequence[Id]) -> Scores:
    known = [one for one in dict.fromkeys(ids) if one in index]
    if not known:
        return np.full(len(ids), _NOWHERE)
    found = dict(zip(known, _cosines(index.rows(known).astype(np.float64), query).tolist(), strict=True))
    return np.array([found.get(one, _NOWHERE) for one in ids])


def _cosines(rows: Scores, query: Units) -> Scores:
    lengths = np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), 1e-12)
    return np.asarray(np.einsum("ij,j->i", rows, query.astype(np.float64)) / lengths, np.float64)

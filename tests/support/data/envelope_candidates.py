"""Candidates for tests of ranking and quality, each made by a short call."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_server.envelopes.model import Candidate, Packed, Packing, Ranked
from drillcore_server.storage.ids import CommunityId, CorpusId, FactId, SourceId

TODAY = date(2026, 5, 24)
NOON = datetime(2026, 5, 24, 12, tzinfo=UTC)
DIMENSIONS = 64


def fact_id(number: int) -> FactId:
    return FactId(UUID(int=number))


def community(number: int) -> CommunityId:
    return CommunityId(UUID(int=1_000 + number))


def axis(number: int) -> npt.NDArray[np.float32]:
    """A unit vector. Vectors of different numbers are orthogonal."""
    vector = np.zeros(DIMENSIONS, np.float32)
    vector[number % DIMENSIONS] = 1
    return vector


def at_angle(cosine: float, number: int = 0, towards: int = 1) -> npt.NDArray[np.float32]:
    """A vector with that cosine to `axis(number)`."""
    vector = cosine * axis(number).astype(np.float64) + np.sqrt(1 - cosine**2) * axis(towards).astype(np.float64)
    return vector.astype(np.float32)


def candidate(number: int, relevance: float = 0.5, *, days_old: int = 0, **said: Any) -> Candidate:
    return Candidate(
        **{
            "id": fact_id(number),
            "corpus": CorpusId(UUID(int=9)),
            "content": f"Fact number {number}.",
            "source": SourceId("source"),
            "importance": 0.5,
            "ingested_at": NOON - timedelta(days=days_old),
            "relevance": relevance,
            "vector": axis(number),
            "model": "model",
            **said,
        }
    )


def ranked(chosen: Candidate) -> Ranked:
    return Ranked(chosen, composite=0.5, freshness=1.0, diversity=1.0)


def packing(included: Sequence[Candidate], excluded: Sequence[Candidate] = (), tokens: int = 100) -> Packing:
    packed = tuple(Packed(ranked(chosen), place, 10) for place, chosen in enumerate(included, 1))
    return Packing(packed, tuple(map(ranked, excluded)), tokens, "text")

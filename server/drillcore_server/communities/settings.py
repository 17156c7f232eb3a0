"""The `[communities]` table of the settings: how and when communities are found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The parameters that decide which communities given facts have."""

    neighbours: int = 20
    """How many of its nearest facts a fact has an edge to, at most."""
    similarity_min: float = 0.60
    """The smallest cosine of an edge. The cosine of an edge is also its weight."""
    resolution: float = 1.0
    """A higher value gives more and smaller communities."""
    iterations: int = 10
    size_min: int = 3
    """The smallest community. Facts of a smaller group are in no community."""
    seed: int = 20_190_326
    """The seed of the algorithm's random numbers. It is fixed, so the same facts give the same communities."""
    exact_facts_max: int = 150_000
    """Up to this number of facts, every two are compared. Above it, an index quickly finds nearly all neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunitySettings(Parameters):
    """The parameters, and when the server finds communities without being asked."""

    new_facts_min: int = 50
    """How many new facts since the last run make a run due."""
    pause_s: float = 600.0
    """The shortest time between two runs for new facts."""
    every_days: float = 7.0
    """After this time any change makes a run due. A corpus without changes keeps its communities."""
    check_every_s: float = 60.0
    """How often to look for corpora that have changed enough."""

    def __post_init__(self) -> None:
        for name in ("neighbours", "resolution", "iterations", "size_min", "new_facts_min", "every_days"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
        if not 0 < self.similarity_min <= 1:
            raise ValueError("similarity_min must be more than 0 and at most 1")
        if min(self.pause_s, self.exact_facts_max, self.seed) < 0 or self.check_every_s <= 0:
            raise ValueError("pause_s, exact_facts_max and seed must be 0 or more, and check_every_s more than 0")

    @property
    def parameters(self) -> Parameters:
        own: dict[str, Any] = asdict(self)
        return Parameters(**{field.name: own[field.name] for field in fields(Parameters)})

"""How communities are found, and when: the `[communities]` table of the settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What the communities of given facts depend on."""

    neighbours: int = 20
    """Of each fact, at most, that it has an edge to."""
    similarity_min: float = 0.60
    """Cosine of an edge; it is also its weight."""
    resolution: float = 1.0
    """Higher gives more communities."""
    iterations: int = 10
    size_min: int = 3
    """Facts of smaller communities are in none."""
    seed: int = 20_190_326
    """Of the algorithm's random numbers: the same facts give the same communities."""
    exact_facts_max: int = 150_000
    """Up to here every two facts are compared; of more facts an index finds nearly all neighbours, much sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunitySettings(Parameters):
    """The parameters, and when the server finds communities by itself."""

    new_facts_min: int = 50
    """Since the last time, to find them anew."""
    pause_s: float = 600.0
    """At least, from one time to the next."""
    every_days: float = 7.0
    """Also after fewer changes; a corpus that has not changed has the communities it had."""
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
        return Parameters(**{one.name: own[one.name] for one in fields(Parameters)})

"""What bounds a slice, and what it prefers: budgets, weights and the order in which candidates are taken."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import xxhash

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.turns import Phase

POLICY: Final = "slice_policy_v1"
REFERENCE_POLICY: Final = "slice_policy_v1_ref"
"""Priorities in single precision, and ties to the higher id: as the reference code has them."""
POLICIES: Final = (POLICY, REFERENCE_POLICY)

NODES_MAX: Final = 10_000
RADIUS_MAX: Final = 1_000
SIBLINGS_MAX: Final = 1_000
WEIGHT_MAX: Final = 1_000.0
_MILLION: Final = 1_000_000
_INVERTED: Final = bytes(255 - byte for byte in range(256))

Rank = tuple[float, int, bytes]
"""Of a candidate: the least is taken first."""


def single(value: float) -> float:
    """The nearest number of single precision, which is what policies and saliences are made of."""
    nearest: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return nearest


def fingerprint(value: object) -> str:
    """xxHash64 of the compact JSON, in hex."""
    return xxhash.xxh64_hexdigest(json.dumps(value, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class PhaseWeights:
    synthesis: float = single(1.0)
    planning: float = single(0.9)
    consolidation: float = single(0.6)
    debugging: float = single(0.5)
    exploration: float = single(0.3)

    def by_phase(self) -> list[float]:
        """At the number of each phase."""
        return [0.0, *(getattr(self, phase.name.lower()) for phase in Phase)]


@dataclass(frozen=True, slots=True)
class Policy:
    id: str = POLICY
    max_nodes: int = 256
    max_radius: int = 10
    phase_weights: PhaseWeights = field(default_factory=PhaseWeights)
    salience_weight: float = single(0.3)
    distance_decay: float = single(0.9)
    include_siblings: bool = True
    max_siblings_per_node: int = 5

    @property
    def fingerprinted_as(self) -> str:
        """The id that fingerprints are made with. The compatible policy has the reference's, to give the same ones."""
        return POLICY

    def params(self) -> dict[str, object]:
        """What `params_hash` is made of: in this order, every number whole."""
        weights = self.phase_weights
        return {
            "version": self.fingerprinted_as,
            "max_nodes": self.max_nodes,
            "max_radius": self.max_radius,
            "phase_weights": {
                "synthesis": _millionths(weights.synthesis),
                "planning": _millionths(weights.planning),
                "consolidation": _millionths(weights.consolidation),
                "debugging": _millionths(weights.debugging),
                "exploration": _millionths(weights.exploration),
            },
            "salience_weight": _millionths(self.salience_weight),
            "distance_decay": _millionths(self.distance_decay),
            "include_siblings": self.include_siblings,
            "max_siblings_per_node": self.max_siblings_per_node,
        }

    def params_hash(self) -> str:
        return fingerprint(self.params())

    def check(self) -> None:
        """Raises `BadInput` for a value that no slice can be made with."""
        if self.id not in POLICIES:
            raise _refused(f"there is no policy of this id; there are {' and '.join(POLICIES)}", "policy_id")
        _check_between("max_nodes", self.max_nodes, 1, NODES_MAX)
        _check_between("max_radius", self.max_radius, 0, RADIUS_MAX)
        _check_between("max_siblings_per_node", self.max_siblings_per_node, 0, SIBLINGS_MAX)
        _check_between("distance_decay", self.distance_decay, 0, 1)
        _check_between("salience_weight", self.salience_weight, 0, WEIGHT_MAX)
        for phase in Phase:
            _check_between("phase_weights", getattr(self.phase_weights, phase.name.lower()), 0, WEIGHT_MAX)

    def ranking(self) -> Callable[[int, float, int, bytes], Rank]:
        """Ranks candidates, each given by phase, salience, distance and id."""
        return self._as_in_the_reference() if self.id == REFERENCE_POLICY else self._in_whole_millionths()

    def _in_whole_millionths(self) -> Callable[[int, float, int, bytes], Rank]:
        weights, salience_weight = self.phase_weights.by_phase(), self.salience_weight
        decays = _powers(self.distance_decay, self.max_radius)

        def rank(phase: int, salience: float, distance: int, node: bytes) -> Rank:
            priority = round((weights[phase] + salience * salience_weight) * decays[distance] * _MILLION)
            return -priority, distance, node

        return rank

    def _as_in_the_reference(self) -> Callable[[int, float, int, bytes], Rank]:
        """Its heap gives the greatest first, and so the higher of two ids."""
        weights, salience_weight = self.phase_weights.by_phase(), self.salience_weight
        decays = [_single_power(self.distance_decay, distance) for distance in range(self.max_radius + 1)]

        def rank(phase: int, salience: float, distance: int, node: bytes) -> Rank:
            base = single(weights[phase] + single(salience * salience_weight))
            return -single(base * decays[distance]), distance, node.translate(_INVERTED)

        return rank


def _powers(base: float, last: int) -> list[float]:
    """By multiplying, which every machine does alike."""
    found = [1.0]
    for _ in range(last):
        found.append(found[-1] * base)
    return found


def _single_power(base: float, exponent: int) -> float:
    """As compilers raise to a whole power: by squaring, each product rounded."""
    result = 1.0
    while True:
        if exponent & 1:
            result = single(result * base)
        exponent >>= 1
        if not exponent:
            return result
        base = single(base * base)


def _millionths(value: float) -> int:
    """Halves up, as the reference rounds them. Nothing is below zero, and of single precision the product is exact."""
    return math.floor(value * _MILLION + 0.5)


def _check_between(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # a NaN is not either
        raise _refused(f"{name} is from {least:g} to {most:g}", name)


def _refused(message: str, name: str) -> BadInput:
    return BadInput(Reason.INVALID_ARGUMENT, message, field=name)

"""The state hash of a corpus: SHA-256 over its active facts, as `id:content_hash:status` in order, joined by `|`.

It is the sum of all facts, so a change anywhere asks for all that follows to be hashed again. What is hashed is kept in
blocks, each with the state of the hash behind it: a change is hashed from its block on. New facts have the greatest
ids, so mostly that is the last block.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drillcore_server.domain.facts import Fact, FactStatus
from drillcore_server.domain.ids import FactId

BLOCK_FACTS: Final = 4_096
_SEPARATOR: Final = b"|"
_ID_CHARACTERS: Final = 36
_STRIDE: Final = _ID_CHARACTERS + 1 + 64 + 1 + len(FactStatus.ACTIVE.name) + len(_SEPARATOR)


def component(fact: Fact) -> bytes:
    return f"{fact.id}:{fact.content_hash}:{fact.status.name}".encode()


@dataclass(frozen=True, slots=True)
class StateHash:
    """Never changed, only followed by another."""

    blocks: tuple[bytes, ...] = ()
    """Components in order, each with the separator behind it."""
    states: tuple[Any, ...] = ()
    """Of the hash after each block but for its last separator. Never updated, only copied."""

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> StateHash:
        """Of facts in the order of their ids; only active ones count."""
        parts = [component(one) + _SEPARATOR for one in facts if one.status is FactStatus.ACTIVE]
        blocks = [b"".join(parts[at : at + BLOCK_FACTS]) for at in range(0, len(parts), BLOCK_FACTS)]
        return cls(tuple(blocks), tuple(_states([], blocks)))

    @property
    def count(self) -> int:
        """The active facts."""
        return sum(map(len, self.blocks)) // _STRIDE

    def hexdigest(self) -> str:
        return self.states[-1].hexdigest() if self.states else hashlib.sha256().hexdigest()

    def changed(self, facts: Mapping[FactId, Fact | None]) -> StateHash:
        """After these facts have changed; None for those that are gone."""
        if not facts:
            return self
        firsts = [block[:_ID_CHARACTERS] for block in self.blocks]
        by_block: dict[int, dict[bytes, bytes]] = {}
        for fact, now in facts.items():
            name = str(fact).encode()
            active = now is not None and now.status is FactStatus.ACTIVE
            place = max(bisect_right(firsts, name) - 1, 0)
            by_block.setdefault(place, {})[name] = component(now) + _SEPARATOR if active and now is not None else b""
        blocks = list(self.blocks) or [b""]
        for place in sorted(by_block, reverse=True):
            blocks[place : place + 1] = _merged(blocks[place], by_block[place])
        first = min(by_block)
        return StateHash(tuple(blocks), tuple(_states(list(self.states[:first]), blocks)))


def _merged(block: bytes, changes: Mapping[bytes, bytes]) -> list[bytes]:
    """A block with changes made, cut if it has become too long; nothing if it is empty."""
    ids = [block[at : at + _ID_CHARACTERS] for at in range(0, len(block), _STRIDE)]
    parts = [block[at : at + _STRIDE] for at in range(0, len(block), _STRIDE)]
    for name in sorted(changes):
        at = bisect_left(ids, name)
        known = at < len(ids) and ids[at] == name
        ids[at : at + known] = [name] if changes[name] else []
        parts[at : at + known] = [changes[name]] if changes[name] else []
    return [b"".join(parts[at : at + BLOCK_FACTS]) for at in range(0, len(parts), BLOCK_FACTS)]


def _states(known: list[Any], blocks: list[bytes]) -> list[Any]:
    """The states after each block; those of the first blocks are known."""
    for number in range(len(known), len(blocks)):
        state = known[-1].copy() if known else hashlib.sha256()
        if known:
            state.update(_SEPARATOR)
        state.update(memoryview(blocks[number])[:-1])
        known.append(state)
    return known


def combined_hash(states: Iterable[tuple[object, int, str]]) -> str:
    """Of corpora together: each by its id, its state revision and its state hash."""
    parts = sorted(f"{corpus}:{revision}:{state_hash}" for corpus, revision, state_hash in states)
    return hashlib.sha256("|".join(parts).encode()).hexdigest()

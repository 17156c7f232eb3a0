"""The state hash of a corpus: SHA-256 over its active facts, as `id:content_hash:status` in order, joined by `|`.

A change anywhere means that everything behind it must be hashed again. So components are kept in memory in blocks, each
with the state of the hash after it, and a change is hashed from its block on. New facts have the greatest ids, so they
mostly change the last block only.

The hash is also stored with its revision. Reading it again costs one key for as long as nothing changes.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.facts.store import FactReader, all_changes, stored_facts
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, FactId, Revision
from drillcore_server.storage.records import RecordKind
from drillcore_server.vectors.corpus_follower import Follower

BLOCK_FACTS: Final = 4_096
_SEPARATOR: Final = b"|"
_ID_CHARACTERS: Final = 36
_STRIDE: Final = _ID_CHARACTERS + 1 + 64 + 1 + len(FactStatus.ACTIVE.name) + len(_SEPARATOR)


def component(fact: Fact) -> bytes:
    """What a fact contributes to the hash."""
    return f"{fact.id}:{fact.content_hash}:{fact.status.name}".encode()


@dataclass(frozen=True, slots=True)
class StateHash:
    """The state hash at one revision. It never changes; `changed` makes the next one."""

    blocks: tuple[bytes, ...] = ()
    """Components in order, each followed by the separator."""
    states: tuple[Any, ...] = ()
    """The state of the hash after each block without its last separator. Copy a state before you update it."""

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> StateHash:
        """Makes the hash of facts in the order of their ids. Only active facts count."""
        parts = [component(fact) + _SEPARATOR for fact in facts if fact.status is FactStatus.ACTIVE]
        blocks = [b"".join(parts[at : at + BLOCK_FACTS]) for at in range(0, len(parts), BLOCK_FACTS)]
        return cls(tuple(blocks), tuple(_states([], blocks)))

    @property
    def count(self) -> int:
        """The number of active facts."""
        return sum(map(len, self.blocks)) // _STRIDE

    def hexdigest(self) -> str:
        return self.states[-1].hexdigest() if self.states else hashlib.sha256().hexdigest()

    def changed(self, facts: Mapping[FactId, Fact | None]) -> StateHash:
        """The hash after these facts have changed. None stands for a fact that is gone."""
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
    """A block with changes applied, split if it is too long. Returns no block if nothing is left."""
    ids = [block[at : at + _ID_CHARACTERS] for at in range(0, len(block), _STRIDE)]
    parts = [block[at : at + _STRIDE] for at in range(0, len(block), _STRIDE)]
    for name in sorted(changes):
        at = bisect_left(ids, name)
        known = at < len(ids) and ids[at] == name
        ids[at : at + known] = [name] if changes[name] else []
        parts[at : at + known] = [changes[name]] if changes[name] else []
    return [b"".join(parts[at : at + BLOCK_FACTS]) for at in range(0, len(parts), BLOCK_FACTS)]


def _states(known: list[Any], blocks: list[bytes]) -> list[Any]:
    """The states after each block. `known` are those of the first blocks, and is extended."""
    for number in range(len(known), len(blocks)):
        state = known[-1].copy() if known else hashlib.sha256()
        if known:
            state.update(_SEPARATOR)
        state.update(memoryview(blocks[number])[:-1])
        known.append(state)
    return known


def combined_hash(states: Iterable[tuple[object, int, str]]) -> str:
    """One hash of several corpora, given as id, state revision and state hash."""
    parts = sorted(f"{corpus}:{revision}:{state_hash}" for corpus, revision, state_hash in states)
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state hash of a corpus at a revision, as it is stored."""

    revision: Revision
    state_hash: str
    facts: int


STATE = RecordKind(StoredState)


class StateHashes:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._follower = Follower(engine, _load, _follow)

    def forget(self, corpora: Collection[CorpusNumber]) -> None:
        """Drops what is kept of corpora from which something was erased."""
        self._follower.forget(corpora)

    def at(self, view: CorpusAtRevision) -> StoredState:
        """The state at the view's revision. Computes and stores it if the stored state is of another revision."""
        stored = STATE.read(view.tr, view.keys.state_hash())
        if stored is not None and stored.revision == view.revision:
            return stored
        made = self._follower.at(view)
        state = StoredState(view.revision, made.hexdigest(), made.count)
        self._engine.run(lambda tr: _store(tr, view.keys, state), Options(idempotent=True))
        return state


def _store(tr: Transaction, keys: CorpusKeys, state: StoredState) -> None:
    """Stores a state only if its revision is still the head: after an erasure, no hash may reveal what was erased."""
    if revisions.head(tr, keys) == state.revision:
        STATE.write(tr, keys.state_hash(), state)


def forget_state(tr: Transaction, keys: CorpusKeys) -> None:
    """Removes the stored hash, to be computed again: it would let a reader test guesses of an erased fact."""
    codec.clear(tr, keys.state_hash())


def _load(snapshot: BatchedReads) -> StateHash:
    return StateHash.of(stored_facts(snapshot))


def _follow(kept: StateHash, since: Sequence[RevisionRecord], snapshot: BatchedReads) -> StateHash:
    touched = changed_facts(snapshot, Revision(since[0].revision - 1))
    found = snapshot.together(touched, lambda view, facts: FactReader(view).facts_by_id(facts))
    return kept.changed(dict(zip(touched, found, strict=True)))


def changed_facts(snapshot: BatchedReads, after: Revision) -> list[FactId]:
    """The facts that the revisions behind `after`, up to the snapshot's, changed. Each once, in the order of ids."""
    return sorted({changed.fact for changed in all_changes(snapshot, after)})

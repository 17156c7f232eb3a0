"""The state hash of a corpus: SHA-256 over its active facts, as `id:content_hash:status` in order, joined by `|`.

It is the sum of all facts, so a change anywhere asks for all that follows to be hashed again. What is hashed is kept in
blocks, each with the state of the hash behind it: a change is hashed from its block on. New facts have the greatest
ids, so mostly that is the last block.

State hashes of corpora: followed in memory, and stored, so that reading one costs nothing while nothing changes.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_server.facts import store as facts
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.facts.store import FACT, FactReader
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


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state hash of a corpus at a revision."""

    revision: Revision
    state_hash: str
    facts: int


STATE = RecordKind(StoredState)
_PAGE: Final = 20_000
"""Entries of the feed read in one transaction."""


class StateHashes:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._follower = Follower(engine, _load, _follow)

    def forget(self, corpora: Collection[CorpusNumber]) -> None:
        """Lets go of what is kept of corpora from which something was erased."""
        self._follower.forget(corpora)

    def at(self, view: CorpusAtRevision) -> StoredState:
        """As it is stored, if that is of the view's revision; else made, and stored for whoever asks next."""
        stored = STATE.read(view.tr, view.keys.state_hash())
        if stored is not None and stored.revision == view.revision:
            return stored
        made = self._follower.at(view)
        state = StoredState(view.revision, made.hexdigest(), made.count)
        self._engine.run(lambda tr: _store(tr, view.keys, state), Options(idempotent=True))
        return state


def _store(tr: Transaction, keys: CorpusKeys, state: StoredState) -> None:
    """Only of the head: what an erasure meanwhile took away must not be told by a hash either."""
    if revisions.head(tr, keys) == state.revision:
        STATE.write(tr, keys.state_hash(), state)


def forget_state(tr: Transaction, keys: CorpusKeys) -> None:
    """Removes the stored hash, to be made anew: who has it could try what an erased fact said."""
    codec.clear(tr, keys.state_hash())


def _load(snapshot: BatchedReads) -> StateHash:
    entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.facts()))
    return StateHash.of(FACT.decode(entry.value) for entry in entries)


def _follow(kept: StateHash, since: Sequence[RevisionRecord], snapshot: BatchedReads) -> StateHash:
    touched = changed_facts(snapshot, Revision(since[0].revision - 1))
    found = snapshot.find(touched, lambda view, one: FactReader(view).fact(one))
    return kept.changed(dict(zip(touched, found, strict=True)))


def changed_facts(snapshot: BatchedReads, after: Revision) -> list[FactId]:
    """The facts that the revisions after one, up to the snapshot's, have changed; each once, in order."""
    touched: set[FactId] = set()
    begin, end = snapshot.keys.fact_changes_between(after, snapshot.revision)
    following: bytes | None = begin
    while following is not None:
        following = snapshot.read(lambda view, at=following: _page(view.tr, at, end, touched))  # type: ignore[misc]
    return sorted(touched)


def _page(tr: Reader, begin: bytes, end: bytes, touched: set[FactId]) -> bytes | None:
    page = [key for key, _ in tr.range(begin, end, limit=_PAGE)]
    touched.update(map(facts.fact_id, page))
    return page[-1] + b"\0" if len(page) == _PAGE else None

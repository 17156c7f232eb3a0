"""State hashes of corpora: followed in memory, and stored, so that reading one costs nothing while nothing changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_server.derived.follower import Follower
from drillcore_server.domain.ids import CorpusNumber, FactId, Revision
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.domain.state_hash import StateHash
from drillcore_server.store import facts, revisions
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.facts import FACT, FactsView
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.records import RecordKind
from drillcore_server.store.snapshot import Snapshot


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

    def at(self, number: CorpusNumber, view: CorpusView) -> StoredState:
        """As it is stored, if that is of the view's revision; else made, and stored for whoever asks next."""
        stored = STATE.read(view.tr, view.keys.state_hash())
        if stored is not None and stored.revision == view.revision:
            return stored
        made = self._follower.at(number, view)
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


def _load(snapshot: Snapshot) -> StateHash:
    entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.facts()))
    return StateHash.of(FACT.decode(entry.value) for entry in entries)


def _follow(kept: StateHash, since: Sequence[RevisionRecord], snapshot: Snapshot) -> StateHash:
    touched = changed_facts(snapshot, Revision(since[0].revision - 1))
    found = snapshot.find(touched, lambda view, one: FactsView(view).fact(one))
    return kept.changed(dict(zip(touched, found, strict=True)))


def changed_facts(snapshot: Snapshot, after: Revision) -> list[FactId]:
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

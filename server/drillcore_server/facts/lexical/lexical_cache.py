"""Keeps the lexical indexes of corpora at the revisions last asked for, and updates them by what has changed since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import Engine
from drillcore_server.facts.index import CombinedChange, combined_changes
from drillcore_server.facts.lexical.lexical_index import LexicalIndex
from drillcore_server.facts.model import SEARCHED_STATUSES, Fact, FactChange
from drillcore_server.facts.store import FactReader, stored_facts
from drillcore_server.facts.words import Lexicon, encode_words, words_of
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.storage.ids import CorpusNumber, FactId, Revision
from drillcore_server.vectors.corpus_follower import RevisionStates

_CORPORA_MAX: Final = 64
_EARLIER_MAX: Final = 2
"""Earlier revisions that are kept for callers who ask several times."""
_MOVED: Final = FactChange.ADDED | FactChange.CONTENT | FactChange.DETAILS | FactChange.ARCHIVED | FactChange.RESTORED
"""Changes after which a fact's words must be made again, or are gone."""


@dataclass(frozen=True, slots=True)
class _State:
    epoch: int
    """The epoch of erasures: what is of an earlier epoch may contain data that must not be used any more."""
    index: LexicalIndex


class LexicalIndexes:
    """Safe to use from many threads.

    A small change is read in the caller's transaction. More is read in further transactions, so it may take longer than
    one can. If the caller's has grown too old meanwhile, it runs again and finds everything here.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._states: OrderedDict[CorpusNumber, RevisionStates[_State]] = OrderedDict()
        self._earlier: OrderedDict[tuple[CorpusNumber, Revision], _State] = OrderedDict()

    def at(self, view: CorpusAtRevision) -> LexicalIndex:
        """Returns the index at the view's revision."""
        number = view.corpus.number
        epoch, states = view.sealed.epoch(number), self._states_of(number)
        found = states.at(view.revision)
        if found is not None and found.epoch == epoch:
            return found.index
        if _is_behind(states, view):
            return self._at_earlier_revision(number, view, epoch)
        with states.follow_lock:
            found = states.at(view.revision)
            if found is None or found.epoch != epoch:
                found = self._followed(states, view, epoch)
        return found.index

    def _states_of(self, number: CorpusNumber) -> RevisionStates[_State]:
        with self._lock:
            states = self._states.setdefault(number, RevisionStates())
            self._states.move_to_end(number)
            while len(self._states) > _CORPORA_MAX:
                self._states.popitem(last=False)
            return states

    def forget(self, corpora: Collection[CorpusNumber]) -> None:
        """Drops what is kept of corpora from which something was erased, since it may contain that."""
        with self._lock:
            for number in corpora:
                self._states.pop(number, None)
            self._earlier = OrderedDict((key, state) for key, state in self._earlier.items() if key[0] not in corpora)

    def _followed(self, states: RevisionStates[_State], view: CorpusAtRevision, epoch: int) -> _State:
        snapshot = BatchedReads.following(self._engine, view)
        states.drop(lambda state: state.epoch != epoch)
        before = states.up_to(view.revision)
        index = _loaded(snapshot) if before is None else _changed(before[1].index, before[0], snapshot)
        snapshot.check_kept()
        fresh = _State(epoch, index)
        states.keep(view.revision, fresh)
        return fresh

    def _at_earlier_revision(self, number: CorpusNumber, view: CorpusAtRevision, epoch: int) -> LexicalIndex:
        with self._lock:
            for key in [key for key, state in self._earlier.items() if key[0] == number and state.epoch != epoch]:
                del self._earlier[key]
            known = self._earlier.get((number, view.revision))
        if known is None:
            snapshot = BatchedReads.following(self._engine, view)
            known = _State(epoch, _loaded(snapshot))
            snapshot.check_kept()
        with self._lock:
            self._earlier[number, view.revision] = known
            while len(self._earlier) > _EARLIER_MAX:
                self._earlier.popitem(last=False)
        return known.index


def _is_behind(states: RevisionStates[_State], view: CorpusAtRevision) -> bool:
    """Tells whether the view is of a revision before those that are kept."""
    if states.newest() is None:
        return view.revision < revisions.head(view.tr, view.keys)
    return states.up_to(view.revision) is None


def _loaded(snapshot: BatchedReads) -> LexicalIndex:
    return LexicalIndex.of(_words(stored_facts(snapshot)))


def _words(facts: Iterable[Fact]) -> Iterator[tuple[FactId, bytes]]:
    """The words of the facts that are searched."""
    lexicon = Lexicon()
    return ((fact.id, encode_words(words_of(fact, lexicon))) for fact in facts if fact.is_searched)


def _changed(index: LexicalIndex, after: Revision, snapshot: BatchedReads) -> LexicalIndex:
    changes = combined_changes(snapshot, after)
    in_search = {fact: what for fact, what in changes.items() if what.status in SEARCHED_STATUSES}
    read = [fact for fact, what in in_search.items() if _is_moved(index, fact, what)]
    words: dict[FactId, bytes | None] = {fact: None for fact in changes if fact not in in_search}
    words |= dict.fromkeys(read)
    found = snapshot.together(read, lambda view, facts: FactReader(view).facts_unless_erased(facts))
    words |= _words(fact for fact in found if fact is not None)
    return index.changed(words) if words else index


def _is_moved(index: LexicalIndex, fact: FactId, what: CombinedChange) -> bool:
    return bool(what.change & _MOVED) or fact not in index

"""Lexical indexes of corpora, at the revisions last asked for, each brought up to date by what has changed since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import Engine
from drillcore_server.derived.fact_feed import Touched, touched
from drillcore_server.derived.lexical_index import LexicalIndex
from drillcore_server.derived.states import States
from drillcore_server.domain.facts import FOUND, FactChange
from drillcore_server.domain.ids import CorpusNumber, FactId, Revision
from drillcore_server.store import revisions, trimming
from drillcore_server.store.facts import FactsView, fact_id
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.snapshot import Snapshot

_CORPORA_MAX: Final = 64
_OCCASIONS_MAX: Final = 2
"""Earlier revisions that are kept, for those who ask several times."""
_MOVED: Final = FactChange.ADDED | FactChange.CONTENT | FactChange.DETAILS | FactChange.ARCHIVED | FactChange.RESTORED
"""After which a fact's words have to be read again, or are not there any more."""


@dataclass(frozen=True, slots=True)
class _State:
    epoch: int
    """Of erasures: what was read before one may have what must not be used any more."""
    index: LexicalIndex


class LexicalIndexes:
    """Safe to use from many threads.

    Reading goes on in transactions of its own, so it may take longer than one can: the caller's, if it has grown too
    old meanwhile, is run again and finds everything here.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._states: OrderedDict[CorpusNumber, States[_State]] = OrderedDict()
        self._occasions: OrderedDict[tuple[CorpusNumber, Revision], _State] = OrderedDict()

    def at(self, number: CorpusNumber, view: CorpusView) -> LexicalIndex:
        """As the view's revision has it."""
        epoch, states = view.sealed.epoch(number), self._states_of(number)
        found = states.at(view.revision)
        if found is not None and found.epoch == epoch:
            return found.index
        if _is_behind(states, view):
            return self._for_the_occasion(number, view, epoch)
        with states.following:
            found = states.at(view.revision)
            if found is None or found.epoch != epoch:
                found = self._followed(states, view, epoch)
        return found.index

    def _states_of(self, number: CorpusNumber) -> States[_State]:
        with self._lock:
            states = self._states.setdefault(number, States())
            self._states.move_to_end(number)
            while len(self._states) > _CORPORA_MAX:
                self._states.popitem(last=False)
            return states

    def forget(self, corpora: Collection[CorpusNumber]) -> None:
        """Lets go of what is kept of corpora from which something was erased: it may have it."""
        with self._lock:
            for number in corpora:
                self._states.pop(number, None)
            self._occasions = OrderedDict((key, one) for key, one in self._occasions.items() if key[0] not in corpora)

    def _followed(self, states: States[_State], view: CorpusView, epoch: int) -> _State:
        snapshot = Snapshot(self._engine, view.keys, view.sealed, view.revision)
        states.drop(lambda one: one.epoch != epoch)
        before = states.up_to(view.revision)
        index = _loaded(snapshot) if before is None else _changed(before[1].index, before[0], snapshot)
        self._check_kept(view)
        fresh = _State(epoch, index)
        states.keep(view.revision, fresh)
        return fresh

    def _for_the_occasion(self, number: CorpusNumber, view: CorpusView, epoch: int) -> LexicalIndex:
        with self._lock:
            for one in [key for key, state in self._occasions.items() if key[0] == number and state.epoch != epoch]:
                del self._occasions[one]
            known = self._occasions.get((number, view.revision))
        if known is None:
            known = _State(epoch, _loaded(Snapshot(self._engine, view.keys, view.sealed, view.revision)))
            self._check_kept(view)
        with self._lock:
            self._occasions[number, view.revision] = known
            while len(self._occasions) > _OCCASIONS_MAX:
                self._occasions.popitem(last=False)
        return known.index

    def _check_kept(self, view: CorpusView) -> None:
        """A trim meanwhile may have taken some of it away before it was read."""
        self._engine.run(lambda tr: trimming.check_kept(tr, view.keys, view.revision))


def _is_behind(states: States[_State], view: CorpusView) -> bool:
    """Whether the view is of a revision that nobody follows any more."""
    if states.newest() is None:
        return view.revision < revisions.head(view.tr, view.keys)
    return states.up_to(view.revision) is None


def _loaded(snapshot: Snapshot) -> LexicalIndex:
    entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.all_fact_words()))
    return LexicalIndex.of((fact_id(entry.key), entry.value) for entry in entries)


def _changed(index: LexicalIndex, after: Revision, snapshot: Snapshot) -> LexicalIndex:
    told = touched(snapshot, after)
    read = [one for one, what in told.items() if what.status in FOUND and _is_moved(index, one, what)]
    words: dict[FactId, bytes | None] = {one: None for one, what in told.items() if what.status not in FOUND}
    words |= zip(read, snapshot.find(read, lambda view, one: FactsView(view).words_left(one)), strict=True)
    return index.changed(words) if words else index


def _is_moved(index: LexicalIndex, fact: FactId, what: Touched) -> bool:
    return bool(what.change & _MOVED) or fact not in index

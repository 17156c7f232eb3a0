"""Keeps the vector indexes of corpora at the revisions last asked for, and updates them by what has changed since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol

import numpy.typing as npt

from drillcore_fdb.engine import Engine, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, Revision
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.vectors.corpus_follower import RevisionStates
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.index_keeper import (
    IndexKeeper,
    IsStopping,
    blank_erased,
    caught_up,
    grow_graph,
    has_erased,
    rebuilt,
    wants_graph,
    wants_rebuild,
)
from drillcore_server.vectors.index_snapshots import IndexName, IndexSnapshots, SavedAt
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import Id, VectorIndex
from drillcore_server.vectors.vector_log import Row, VectorLog

_SAVE_SHARE: Final = 0.1
"""A graph with a larger share of new vectors since it was saved is saved again."""


class IndexHistory(RevisionStates[VectorIndex[Id]]):
    def __init__(self, name: IndexName, corpus: Corpus, keys: CorpusKeys, sealed: SealedRecords) -> None:
        super().__init__()
        self.name = name
        self.corpus = corpus
        self.keys = keys
        self.sealed = sealed
        self.tend_lock = threading.RLock()
        """Held while its graph is changed or saved."""
        self._saved: tuple[Revision, VectorLog, int] | None = None

    def note_saved(self, revision: Revision, log: VectorLog) -> None:
        self._saved = revision, log, log.graph.count if log.graph is not None else 0

    def is_saved(self, revision: Revision) -> bool:
        return self._saved is not None and self._saved[0] == revision

    def is_worth_saving(self, log: VectorLog) -> bool:
        """Tells whether much of the graph is missing from what was saved last."""
        if log.graph is None:
            return False
        if self._saved is None or self._saved[1] is not log:
            return True
        return log.graph.count - self._saved[2] > log.graph.count * _SAVE_SHARE


_INDEXES_MAX: Final = 64
_EARLIER_MAX: Final = 2
"""Earlier revisions that are kept for callers who page through results."""


@dataclass(frozen=True, slots=True)
class Changes(Generic[Id]):
    rows: Mapping[Id, Row | None]
    """New or changed vectors; None for those that are gone."""
    erased: Collection[Id] = ()
    """Ids whose earlier vectors must leave memory and never enter a snapshot, whether the ids still exist or not."""
    is_erasure: bool = False
    """Whether something was erased: then earlier states are not kept."""


class VectorSource(Protocol[Id]):
    """Where the vectors of an index are stored."""

    @property
    def kind(self) -> str:
        """Part of the names of snapshots."""

    @property
    def kept_as(self) -> npt.DTypeLike:
        """The precision in which vectors are kept in memory."""

    def model(self, view: CorpusAtRevision, /) -> int:
        """Returns the number of the embedding model whose vectors are searched; 0 before there are any."""

    def load(self, snapshot: BatchedReads, model: int, /) -> Iterator[tuple[Id, Row]]:
        """Yields all vectors of a revision."""

    def changes(self, index: VectorIndex[Id], after: Revision, snapshot: BatchedReads, model: int, /) -> Changes[Id]:
        """Returns what has changed since an index of an earlier revision."""


class IndexFollower(Generic[Id]):
    """The vector indexes of one source, of all corpora. Safe to use from many threads.

    A small change is read in the caller's transaction. More is read in further transactions, so it may take longer than
    one can. If the caller's has grown too old meanwhile, it runs again and finds everything here.
    """

    def __init__(
        self,
        engine: Engine,
        source: VectorSource[Id],
        settings: VectorSettings | None = None,
        keeper: IndexKeeper | None = None,
        snapshots: IndexSnapshots | None = None,
    ) -> None:
        """Without a keeper nothing happens in the background, and every search compares every vector."""
        self._engine = engine
        self._source = source
        self._settings = settings or VectorSettings()
        self._keeper = keeper
        self._snapshots = snapshots
        self._lock = threading.Lock()
        self._histories: OrderedDict[IndexName, IndexHistory[Id]] = OrderedDict()
        self._earlier: OrderedDict[tuple[IndexName, Revision, int], VectorIndex[Id]] = OrderedDict()
        """Indexes of earlier revisions, by name, revision and epoch of erasures."""
        if keeper is not None:
            keeper.register(self)

    def at(self, view: CorpusAtRevision) -> VectorIndex[Id]:
        """Returns the index at the view's revision."""
        return self._at(IndexName(view.corpus.number, self._source.kind, self._source.model(view)), view)

    def warm(self, view: CorpusAtRevision, model: int) -> None:
        """Makes the index of a model that searches do not use yet. All its vectors must exist."""
        self._at(IndexName(view.corpus.number, self._source.kind, model), view)

    def forget(self, number: CorpusNumber, model: int) -> None:
        """Drops the index of a model, so that its next use reads it again."""
        with self._lock:
            self._histories.pop(IndexName(number, self._source.kind, model), None)

    def _at(self, name: IndexName, view: CorpusAtRevision) -> VectorIndex[Id]:
        history = self._history(name, view)
        found = history.at(view.revision)
        if found is None:
            if _is_behind(history, view):
                return self._at_earlier_revision(name, view)
            with history.follow_lock:
                found = history.at(view.revision) or self._followed(history, view)
        self._nudge(history, found)  # on every call: a load may outlast its transaction, and only a later run gets here
        return found

    def _history(self, name: IndexName, view: CorpusAtRevision) -> IndexHistory[Id]:
        with self._lock:
            if name not in self._histories:
                self._histories[name] = IndexHistory(name, view.corpus, view.keys, view.sealed)
            self._histories.move_to_end(name)
            while len(self._histories) > _INDEXES_MAX:
                self._histories.popitem(last=False)
            return self._histories[name]

    def _followed(self, history: IndexHistory[Id], view: CorpusAtRevision) -> VectorIndex[Id]:
        snapshot = BatchedReads.following(self._engine, view)
        before = history.up_to(view.revision) or self._restored(history, view)
        changes: Changes[Id] = Changes({})
        if before is None:
            fresh = self._loaded(history.name, snapshot)
        else:
            changes = self._source.changes(before[1], before[0], snapshot, history.name.model)
            is_same = not (changes.rows or changes.erased)
            fresh = before[1] if is_same else before[1].changed(changes.rows, changes.erased)
        snapshot.check_kept()
        history.keep(view.revision, fresh, is_first=changes.is_erasure)
        self._drop_unused(history.name, view)
        return fresh

    def _drop_unused(self, name: IndexName, view: CorpusAtRevision) -> None:
        """Drops the indexes of models that the corpus has no vectors of any more."""
        found = embeddings_of(view)
        used = () if found is None else found.numbers
        with self._lock:
            for other, history in list(self._histories.items()):
                newest = history.newest()
                is_older = newest is not None and newest[0] < view.revision
                if (other.corpus, other.kind) == (name.corpus, name.kind) and other.model not in used and is_older:
                    del self._histories[other]

    def _loaded(self, name: IndexName, snapshot: BatchedReads) -> VectorIndex[Id]:
        items = self._source.load(snapshot, name.model)
        return VectorIndex[Id].of(items, self._settings, self._source.kept_as)

    def _at_earlier_revision(self, name: IndexName, view: CorpusAtRevision) -> VectorIndex[Id]:
        epoch = view.sealed.epoch(name.corpus)
        with self._lock:
            for key in [key for key in self._earlier if key[0] == name and key[2] != epoch]:
                del self._earlier[key]  # it may contain what was erased since
            found = self._earlier.get((name, view.revision, epoch))
        if found is None:
            snapshot = BatchedReads.following(self._engine, view)
            found = self._loaded(name, snapshot)
            snapshot.check_kept()
        with self._lock:
            self._earlier[name, view.revision, epoch] = found
            while len(self._earlier) > _EARLIER_MAX:
                self._earlier.popitem(last=False)
        return found

    def _restored(self, history: IndexHistory[Id], view: CorpusAtRevision) -> tuple[Revision, VectorIndex[Id]] | None:
        """Loads a snapshot, if the store has its revision and the view is not of an earlier revision."""
        if self._snapshots is None:
            return None
        loaded: tuple[SavedAt, VectorIndex[Id]] | None = self._snapshots.load(history.name)
        if loaded is None:
            return None
        saved, index = loaded
        if saved.revision > view.revision:  # another server may have saved it since the view's transaction began
            return None
        record = revisions.get(view.tr, view.keys, saved.revision)
        if record is None or record.audit_id != saved.record:
            self._snapshots.discard(history.name, f"the store has no such revision {saved.revision}")
            return None
        history.keep(saved.revision, index)
        history.note_saved(saved.revision, index.log)
        return saved.revision, index

    def _nudge(self, history: IndexHistory[Id], index: VectorIndex[Id]) -> None:
        due = wants_rebuild(index) or wants_graph(index) or has_erased(index.log)
        if due and self._keeper is not None:
            self._keeper.nudge(self, history.name)

    def tend(self, name: IndexName, is_stopping: IsStopping) -> None:
        """Makes, extends or rebuilds the graph of an index, whatever is due; then saves it, if much is new."""
        with self._lock:
            history = self._histories.get(name)
        if history is None:
            return
        with history.tend_lock:
            while self._tended(history, is_stopping):
                continue
            newest = history.newest()
            if newest is not None and history.is_worth_saving(newest[1].log) and not is_stopping():
                self._save(history)

    def _tended(self, history: IndexHistory[Id], is_stopping: IsStopping) -> bool:
        """Does one thing that is due. Returns False if nothing is, or if it was told to stop."""
        newest = history.newest()
        if newest is None or is_stopping():
            return False
        index = newest[1]
        if wants_rebuild(index):
            fresh = rebuilt(index, is_stopping)
            if fresh is not None:
                _adopt(history, index, fresh)
        elif wants_graph(index):
            grow_graph(index, is_stopping)
        elif has_erased(index.log):
            blank_erased(index.log)
        else:
            return False
        return True

    def save_all(self) -> None:
        with self._lock:
            histories = list(self._histories.values())
        for history in histories:
            newest = history.newest()
            if newest is not None and newest[1].log.graph is not None and not history.is_saved(newest[0]):
                with history.tend_lock:
                    self._save(history)

    def _save(self, history: IndexHistory[Id]) -> None:
        """Saves at the head: the index contains nothing erased up to it, and a later erasure destroys the key."""
        if self._snapshots is None:
            return
        number = self._snapshots.key(history.name)
        found = self._engine.run(lambda tr: self._at_head(tr, history))
        if found is None:
            return
        saved, index = found
        blank_erased(index.log)
        if index.log.graph is not None:
            self._snapshots.save(history.name, saved, index, number)
            self._snapshots.remove_former(history.name)
            history.note_saved(saved.revision, index.log)

    def _at_head(self, tr: Transaction, history: IndexHistory[Id]) -> tuple[SavedAt, VectorIndex[Id]] | None:
        """Returns None if searches use another model."""
        head = revisions.head(tr.snapshot, history.keys)
        view = CorpusAtRevision(tr.snapshot, history.corpus, history.keys, history.sealed, head)
        if self._source.model(view) != history.name.model:
            return None
        record = revisions.get(tr.snapshot, history.keys, head)
        if record is None:
            raise StoreCorruptError(f"the record of revision {head} is missing")
        return SavedAt(head, record.audit_id), self._of_model(history, view)

    def _of_model(self, history: IndexHistory[Id], view: CorpusAtRevision) -> VectorIndex[Id]:
        with history.follow_lock:
            return history.at(view.revision) or self._followed(history, view)


def _is_behind(history: IndexHistory[Id], view: CorpusAtRevision) -> bool:
    """Tells whether the view's revision is earlier than those that are kept."""
    if history.newest() is None:
        return view.revision < revisions.head(view.tr, view.keys)
    return history.up_to(view.revision) is None


def _adopt(history: IndexHistory[Id], built_from: VectorIndex[Id], fresh: VectorIndex[Id]) -> None:
    """Makes the newest state use the rebuilt index."""
    with history.follow_lock:
        newest = history.newest()
        if newest is not None and newest[1].log is built_from.log:
            history.keep(newest[0], caught_up(fresh, built_from, newest[1]))

"""Vector indexes of corpora, each at the revisions last asked for, and brought up to date by what has changed since."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol

import numpy.typing as npt

from drillcore_fdb.engine import Engine, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.derived.index_keeper import IndexKeeper
from drillcore_server.derived.index_snapshots import IndexName, IndexSnapshots, SavedAt
from drillcore_server.derived.index_upkeep import (
    IsStopping,
    blank_erased,
    caught_up,
    grow_graph,
    has_erased,
    rebuilt,
    wants_graph,
    wants_rebuild,
)
from drillcore_server.derived.lineage import Lineage
from drillcore_server.derived.settings import VectorSettings
from drillcore_server.derived.vector_index import Id, VectorIndex
from drillcore_server.derived.vector_log import Row
from drillcore_server.domain.ids import CorpusNumber, Revision
from drillcore_server.store import revisions, trimming
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.snapshot import Snapshot

_INDEXES_MAX: Final = 64
_OCCASIONS_MAX: Final = 2
"""Earlier revisions that are kept, for those who page through what they found."""


@dataclass(frozen=True, slots=True)
class Changes(Generic[Id]):
    rows: Mapping[Id, Row | None]
    """The vectors that are new or changed; None for those that are gone."""
    erased: Collection[Id] = ()
    """Whose vectors from before must not stay in memory, nor get into a snapshot, whether they are gone now or were."""
    is_erasure: bool = False
    """Whether something was erased: earlier states are not kept."""


class VectorSource(Protocol[Id]):
    """Where the vectors of an index are stored."""

    @property
    def kind(self) -> str:
        """In the names of snapshots."""

    @property
    def kept_as(self) -> npt.DTypeLike: ...

    def model(self, view: CorpusView, /) -> int:
        """The number of the embedding model whose vectors are searched; 0 before there are any."""

    def load(self, snapshot: Snapshot, model: int, /) -> Iterator[tuple[Id, Row]]:
        """All vectors of a revision."""

    def changes(self, index: VectorIndex[Id], after: Revision, snapshot: Snapshot, model: int, /) -> Changes[Id]:
        """What has changed from an index, which is of an earlier revision."""


class IndexFollower(Generic[Id]):
    """Safe to use from many threads.

    Reading goes on in transactions of its own, so it may take longer than one can: the caller's, if it has grown too
    old meanwhile, is run again and finds everything here.
    """

    def __init__(
        self,
        engine: Engine,
        source: VectorSource[Id],
        settings: VectorSettings | None = None,
        keeper: IndexKeeper | None = None,
        snapshots: IndexSnapshots | None = None,
    ) -> None:
        """Without a keeper nothing is done in the background: every vector is compared."""
        self._engine = engine
        self._source = source
        self._settings = settings or VectorSettings()
        self._keeper = keeper
        self._snapshots = snapshots
        self._lock = threading.Lock()
        self._lineages: OrderedDict[IndexName, Lineage[Id]] = OrderedDict()
        self._occasions: OrderedDict[tuple[IndexName, Revision, int], VectorIndex[Id]] = OrderedDict()
        """With the epoch of erasures that each is of."""
        if keeper is not None:
            keeper.know(self)

    def at(self, number: CorpusNumber, view: CorpusView) -> VectorIndex[Id]:
        """As the view's revision has it."""
        return self._at(IndexName(number, self._source.kind, self._source.model(view)), view)

    def warm(self, number: CorpusNumber, view: CorpusView, model: int) -> None:
        """Makes the index of a model that is not searched by yet. Every vector of it must be there."""
        self._at(IndexName(number, self._source.kind, model), view)

    def forget(self, number: CorpusNumber, model: int) -> None:
        """Has the index of a model read anew when it is asked for."""
        with self._lock:
            self._lineages.pop(IndexName(number, self._source.kind, model), None)

    def _at(self, name: IndexName, view: CorpusView) -> VectorIndex[Id]:
        lineage = self._lineage(name, view)
        found = lineage.at(view.revision)
        if found is None:
            if _is_behind(lineage, view):
                return self._for_the_occasion(name, view)
            with lineage.following:
                found = lineage.at(view.revision) or self._followed(lineage, view)
        self._nudge(lineage, found)  # each time: a load that outlasts its transaction is found by the next run, or call
        return found

    def _lineage(self, name: IndexName, view: CorpusView) -> Lineage[Id]:
        with self._lock:
            if name not in self._lineages:
                self._lineages[name] = Lineage(name, view.keys, view.sealed)
            self._lineages.move_to_end(name)
            while len(self._lineages) > _INDEXES_MAX:
                self._lineages.popitem(last=False)
            return self._lineages[name]

    def _followed(self, lineage: Lineage[Id], view: CorpusView) -> VectorIndex[Id]:
        snapshot = Snapshot(self._engine, view.keys, view.sealed, view.revision)
        before = lineage.up_to(view.revision) or self._restored(lineage, view)
        changes: Changes[Id] = Changes({})
        if before is None:
            fresh = self._loaded(lineage.name, snapshot)
        else:
            changes = self._source.changes(before[1], before[0], snapshot, lineage.name.model)
            is_same = not (changes.rows or changes.erased)
            fresh = before[1] if is_same else before[1].changed(changes.rows, changes.erased)
        self._check_kept(view)
        lineage.keep(view.revision, fresh, is_first=changes.is_erasure)
        self._drop_unused(lineage.name, view)
        return fresh

    def _drop_unused(self, name: IndexName, view: CorpusView) -> None:
        """Lets go of the indexes of models that the corpus no longer has vectors of."""
        found = view.embeddings()
        used = () if found is None else found.numbers
        with self._lock:
            for other, lineage in list(self._lineages.items()):
                newest = lineage.newest()
                is_older = newest is not None and newest[0] < view.revision
                if (other.corpus, other.kind) == (name.corpus, name.kind) and other.model not in used and is_older:
                    del self._lineages[other]

    def _loaded(self, name: IndexName, snapshot: Snapshot) -> VectorIndex[Id]:
        items = self._source.load(snapshot, name.model)
        return VectorIndex[Id].of(items, self._settings, self._source.kept_as)

    def _check_kept(self, view: CorpusView) -> None:
        """A trim meanwhile may have taken some of it away before it was read."""
        self._engine.run(lambda tr: trimming.check_kept(tr, view.keys, view.revision))

    def _for_the_occasion(self, name: IndexName, view: CorpusView) -> VectorIndex[Id]:
        epoch = view.sealed.epoch(name.corpus)
        with self._lock:
            for one in [one for one in self._occasions if one[0] == name and one[2] != epoch]:
                del self._occasions[one]  # it may have what was erased since
            found = self._occasions.get((name, view.revision, epoch))
        if found is None:
            found = self._loaded(name, Snapshot(self._engine, view.keys, view.sealed, view.revision))
            self._check_kept(view)
        with self._lock:
            self._occasions[name, view.revision, epoch] = found
            while len(self._occasions) > _OCCASIONS_MAX:
                self._occasions.popitem(last=False)
        return found

    def _restored(self, lineage: Lineage[Id], view: CorpusView) -> tuple[Revision, VectorIndex[Id]] | None:
        """From a snapshot, if it is of a revision that the store has, and the view's is not an earlier one."""
        if self._snapshots is None:
            return None
        loaded: tuple[SavedAt, VectorIndex[Id]] | None = self._snapshots.load(lineage.name)
        if loaded is None:
            return None
        saved, index = loaded
        if saved.revision > view.revision:  # another server may have saved it since the view's transaction began
            return None
        record = revisions.get(view.tr, view.keys, saved.revision)
        if record is None or record.audit_id != saved.record:
            self._snapshots.discard(lineage.name, f"the store has no such revision {saved.revision}")
            return None
        lineage.keep(saved.revision, index)
        lineage.note_saved(saved.revision, index.log)
        return saved.revision, index

    def _nudge(self, lineage: Lineage[Id], index: VectorIndex[Id]) -> None:
        due = wants_rebuild(index) or wants_graph(index) or has_erased(index.log)
        if due and self._keeper is not None:
            self._keeper.nudge(self, lineage.name)

    def tend(self, name: IndexName, is_stopping: IsStopping) -> None:
        """Makes, adds to or rebuilds the graph of an index, whatever is due; then saves it, if much is new."""
        with self._lock:
            lineage = self._lineages.get(name)
        if lineage is None:
            return
        with lineage.tending:
            while self._tended(lineage, is_stopping):
                continue
            newest = lineage.newest()
            if newest is not None and lineage.is_worth_saving(newest[1].log) and not is_stopping():
                self._save(lineage)

    def _tended(self, lineage: Lineage[Id], is_stopping: IsStopping) -> bool:
        """Does one thing that is due. False if there is none, or it was told to stop."""
        newest = lineage.newest()
        if newest is None or is_stopping():
            return False
        index = newest[1]
        if wants_rebuild(index):
            fresh = rebuilt(index, is_stopping)
            if fresh is not None:
                _adopt(lineage, index, fresh)
        elif wants_graph(index):
            grow_graph(index, is_stopping)
        elif has_erased(index.log):
            blank_erased(index.log)
        else:
            return False
        return True

    def save_all(self) -> None:
        with self._lock:
            lineages = list(self._lineages.values())
        for lineage in lineages:
            newest = lineage.newest()
            if newest is not None and newest[1].log.graph is not None and not lineage.is_saved(newest[0]):
                with lineage.tending:
                    self._save(lineage)

    def _save(self, lineage: Lineage[Id]) -> None:
        """At the head: what was erased up to it is not in the index, and what is erased later destroys the key."""
        if self._snapshots is None:
            return
        number = self._snapshots.key(lineage.name)
        found = self._engine.run(lambda tr: self._at_head(tr, lineage))
        if found is None:
            return
        saved, index = found
        blank_erased(index.log)
        if index.log.graph is not None:
            self._snapshots.save(lineage.name, saved, index, number)
            self._snapshots.remove_former(lineage.name)
            lineage.note_saved(saved.revision, index.log)

    def _at_head(self, tr: Transaction, lineage: Lineage[Id]) -> tuple[SavedAt, VectorIndex[Id]] | None:
        """None if searches use another model."""
        head = revisions.head(tr.snapshot, lineage.keys)
        view = CorpusView(tr.snapshot, lineage.keys, lineage.sealed, head)
        if self._source.model(view) != lineage.name.model:
            return None
        record = revisions.get(tr.snapshot, lineage.keys, head)
        if record is None:
            raise StoreCorruptError(f"the record of revision {head} is missing")
        return SavedAt(head, record.audit_id), self._of_model(lineage, view)

    def _of_model(self, lineage: Lineage[Id], view: CorpusView) -> VectorIndex[Id]:
        with lineage.following:
            return lineage.at(view.revision) or self._followed(lineage, view)


def _is_behind(lineage: Lineage[Id], view: CorpusView) -> bool:
    """Whether the view is of a revision that nobody follows any more."""
    if lineage.newest() is None:
        return view.revision < revisions.head(view.tr, view.keys)
    return lineage.up_to(view.revision) is None


def _adopt(lineage: Lineage[Id], built_from: VectorIndex[Id], fresh: VectorIndex[Id]) -> None:
    """Newer states use what was rebuilt."""
    with lineage.following:
        newest = lineage.newest()
        if newest is not None and newest[1].log is built_from.log:
            lineage.keep(newest[0], caught_up(fresh, built_from, newest[1]))

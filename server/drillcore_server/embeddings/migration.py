"""Changes the embedding model of a corpus, revision by revision, while it is searched and written.

    begun -> vectors of the next model, some hundred a revision -> one revision from which on they are searched by
          -> vectors of other models removed, some thousand a revision -> finished

How far it is stands in the store, so it may end anywhere and go on later, on any server; and several may be at it:
each slice is planned on the head, and one that another was faster with is planned anew and finds less to do.

MigrateEmbeddings; and what the server goes on with by itself.

GetMigration.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, Final, NamedTuple
from uuid import uuid4

from drillcore_fdb.engine import Engine, Reader, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.embeddings.missing import EmbeddedText, EmbeddedTexts, Item, MissingVectors, SectionSums
from drillcore_server.facts.store import FactWrites, packed
from drillcore_server.hierarchy.store import HierarchyWrites
from drillcore_server.kernel import access
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel.access import SERVER, InTenant
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import AsOf, BatchedReads, CorpusReads
from drillcore_server.kernel.errors import Missing, NotReady, Unavailable
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, refusing
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusId, CorpusNumber, FactId, NodeId, RequestId, Revision, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.vectors import store as embeddings
from drillcore_server.vectors.embedding.embedders import Embedders, TextRefused, embed_or_refuse, model_of
from drillcore_server.vectors.index_follower import IndexFollower
from drillcore_server.vectors.model import Embeddings, Migration, Model
from drillcore_server.vectors.store import embeddings_of

SLICE_MAX: Final = 256
"""Vectors that one revision adds: few enough that other writers hardly wait."""
CLEARED_MAX: Final = 2_000
"""Vectors that one revision removes."""
LAST_MAX: Final = 32
"""Vectors that may be added by the revision that searches by them from then on, if others write all the time."""
_PATIENCE: Final = 5
"""How often the last vectors are added before it."""
_TIMEOUT_S: Final = 30.0
_LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sliced:
    """What a revision of a migration did."""

    revision: Revision
    vectors: int


SLICED = RecordKind(Sliced)


class Progress(NamedTuple):
    """How far a corpus is at its head."""

    models: Embeddings | None
    migration: Migration | None
    revision: Revision

    @property
    def is_finished(self) -> bool:
        return self.migration is None or self.migration.finished_at is not None


_SlicePlan = Plan[Sliced] | NothingToChange[Sliced]


def _ended(base: Revision) -> NothingToChange[Sliced]:
    """For a step that somebody else has made, or for a migration that somebody else has ended."""
    return NothingToChange(Sliced(base, 0))


@dataclass(slots=True)
class _Kept:
    """What one run need not do again when others overtake it."""

    sums: SectionSums
    rounds: int = 0
    """In which nearly all had their vectors."""
    vectors: dict[tuple[Item, str], bytes] = field(default_factory=dict)
    """Of the slice that is being planned."""

    def of_chunks(self) -> dict[NodeId, bytes]:
        return {NodeId(item.id): vector for (item, _), vector in self.vectors.items() if not item.is_fact}


class Migrator:
    def __init__(
        self,
        reviser: Reviser,
        embedders: Embedders,
        indexes: Sequence[IndexFollower[Any]] = (),
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`indexes` are made ready before they are searched by the next model.

        `stopping` says that the server stops: a migration then ends after the slice that it is at.
        """
        self._reviser = reviser
        self._embedders = embedders
        self._indexes = indexes
        self._stopping = stopping
        self._lock = threading.Lock()
        self._under_way: dict[CorpusNumber, threading.Lock] = {}

    def begin(self, call: Call, target: Target) -> Corpus:
        """Begins a migration to the server's own model, as one revision, unless it is begun or not needed."""
        self._reviser.revise(call, target, SLICED, lambda corpus, base: self._begin(call, corpus, base))
        return self._reviser.find(call, target)[0]

    def _begin(self, call: Call, corpus: Corpus, base: Revision) -> _SlicePlan:
        own = model_of(self._embedders.own)
        snapshot = self._snapshot(corpus, base)
        now = snapshot.read(embeddings_of)
        if now is None or (now.next.model if now.next else now.current.model) == own:
            return NothingToChange(Sliced(base, 0), self._reviser.make_keys(corpus, []))
        after = now.dropped() if now.current.model == own else now.begun(own)
        total = _count(snapshot, now) if after.next else 0
        begun = Migration(corpus.tenant_id, corpus.id, *own, call.at, total, since=base)
        return self._plan(corpus, base, [self._hierarchy_writes(corpus).set_embeddings(after)], begun)

    def progress(self, corpus: Corpus) -> Progress:
        keys = self._reviser.keys.of_corpus(corpus.number)
        _, head = self._reviser.find(self._call(corpus), _target(corpus))
        with refusing():
            models, migration = self._snapshot(corpus, head).read(
                lambda view: (embeddings_of(view), embeddings.migration(view.tr, keys))
            )
        return Progress(models, migration, head)

    def run(self, corpus: Corpus, report: Callable[[Progress], None]) -> Progress:
        """Goes on with a migration until it is finished; `report` hears of every step.

        Raises `Refused` if it cannot go on now: what was done is kept.
        """
        with self._alone(corpus, report):
            kept: _Kept | None = None
            while not (progress := self.progress(corpus)).is_finished:
                report(progress)
                self._check_stopping()
                following = progress.models.next if progress.models else None
                if following is not None and (kept is None or kept.sums.model != following.number):
                    kept = _Kept(SectionSums(following.number))
                self._step(corpus, progress, kept)
            return progress

    @contextmanager
    def _alone(self, corpus: Corpus, report: Callable[[Progress], None]) -> Iterator[None]:
        """Two at once would do no harm, and nothing but each other's work: the second one only tells how far it is."""
        with self._lock:
            turn = self._under_way.setdefault(corpus.number, threading.Lock())
        while not turn.acquire(timeout=_LOOK_EVERY_S):
            report(self.progress(corpus))
            self._check_stopping()
        try:
            yield
        finally:
            turn.release()

    def _check_stopping(self) -> None:
        if self._stopping():
            message = "the server is stopping; the migration goes on when it is back"
            raise Unavailable(Reason.SHUTTING_DOWN, message)

    def _step(self, corpus: Corpus, progress: Progress, kept: _Kept | None) -> None:
        """One revision further."""
        models, migration = progress.models, progress.migration
        assert models is not None
        assert migration is not None
        if models.next is None:
            self._revise(corpus, self._clear)
            return
        assert kept is not None
        self._check_model(models)
        if migration.cursor is not None:
            self._revise(corpus, lambda c, base: self._slice(c, base, kept))
        else:
            self._revise(corpus, lambda c, base: self._flip(c, base, kept))

    def _check_model(self, models: Embeddings) -> None:
        own = model_of(self._embedders.own)
        if models.next is not None and models.next.model != own:
            message = (
                f"the corpus is being changed to {models.next.model}, and this server has {own}; begin a migration to "
                "that, or go on with a server that has the other"
            )
            raise NotReady(Reason.MODEL_MISMATCH, message)

    def _revise(self, corpus: Corpus, make_plan: Callable[[Corpus, Revision], _SlicePlan]) -> None:
        """Plans until it is written, however often others are faster."""
        call = self._call(corpus)
        try:
            self._reviser.revise(call, _target(corpus), SLICED, make_plan)
        except Unavailable as refused:
            if refused.reason is not Reason.CONFLICT:
                raise

    def _slice(self, corpus: Corpus, base: Revision, kept: _Kept) -> _SlicePlan:
        """The next vectors of the walk through all that were there when the migration began."""
        models, migration = self._state(corpus, base)
        if models is None or migration is None or models.next is None or migration.cursor is None:
            return _ended(base)
        missing = MissingVectors(self._snapshot(corpus, base), models)
        found = missing.from_key(migration.cursor, SLICE_MAX)
        writes = self._vector_writes(corpus, missing, found.missing, kept)
        done = migration.done + len(found.missing)
        after = replace(migration, done=done, total=max(done, migration.total), cursor=found.following)
        return self._plan(corpus, base, writes, after)

    def _flip(self, corpus: Corpus, base: Revision, kept: _Kept) -> _SlicePlan:
        """Searches by the next model, if all have their vectors; else some more of those."""
        models, migration = self._state(corpus, base)
        if models is None or migration is None or models.next is None or migration.cursor is not None:
            return _ended(base)
        snapshot = self._snapshot(corpus, base)
        missing = MissingVectors(snapshot, models)
        found = missing.changed_since(migration.since)
        some = found.missing[:SLICE_MAX]
        writes = [
            *self._vector_writes(corpus, missing, some, kept),
            *(Write(missing.next_key(one), None) for one in found.stray),
        ]
        done = migration.done + len(some)
        after = replace(migration, done=done, total=max(done, migration.total))
        if found.missing and (len(found.missing) > LAST_MAX or kept.rounds < _PATIENCE):
            kept.rounds += len(found.missing) <= LAST_MAX
            looked_at = migration.since if len(found.missing) > SLICE_MAX else base
            return self._plan(corpus, base, writes, replace(after, since=looked_at))
        self._prepare_indexes(corpus, snapshot, models.next.number, is_whole=not found.missing)
        kept.sums.bring_up_to(snapshot, kept.of_chunks())
        make = self._hierarchy_writes(corpus)
        flip = chain(writes, [make.set_embeddings(models.flipped())], kept.sums.writes(snapshot, make))
        flipped = replace(after, total=done, cursor=b"", flipped_at=datetime.now(UTC))
        return self._plan(corpus, base, flip, flipped, tuple(sorted(kept.sums.sums)))

    def _prepare_indexes(self, corpus: Corpus, snapshot: BatchedReads, model: int, *, is_whole: bool) -> None:
        for index in self._indexes:
            if is_whole:
                snapshot.read(lambda view, one=index: one.warm(view, model))  # type: ignore[misc]
            else:
                index.forget(corpus.number, model)

    def _clear(self, corpus: Corpus, base: Revision) -> _SlicePlan:
        """Removes vectors of models that are not used; the last time, says that there are none any more."""
        models, migration = self._state(corpus, base)
        if models is None or migration is None or models.next is not None or migration.finished_at is not None:
            return _ended(base)
        snapshot = self._snapshot(corpus, base)
        begin = migration.cursor or b""
        keys = [entry.key for entry in islice(_unused(snapshot, models, begin), CLEARED_MAX)]
        writes = [Write(key, None) for key in keys]
        if len(keys) == CLEARED_MAX:
            return self._plan(corpus, base, writes, replace(migration, cursor=versioned.behind(keys[-1])))
        make = self._hierarchy_writes(corpus)
        writes.append(make.set_embeddings(replace(models, former=())))
        return self._plan(corpus, base, writes, replace(migration, cursor=None, finished_at=datetime.now(UTC)))

    def _vector_writes(
        self, corpus: Corpus, missing: MissingVectors, items: Sequence[Item], kept: _Kept
    ) -> list[Write]:
        """The vectors of the next model for these. Those that were made before are not made again."""
        texts = EmbeddedTexts(missing.snapshot).of(items)
        wanted = {(one.item, one.text): one for one in texts}
        new = [one for key, one in wanted.items() if key not in kept.vectors]
        made = {(one.item, one.text): vector for one, vector in zip(new, self._embedded(new), strict=True)}
        kept.vectors = {key: made[key] if key in made else kept.vectors[key] for key in wanted}
        self._reviser.make_keys(corpus, {one.source for one in texts})
        assert missing.models.next is not None
        number, nodes, facts = missing.models.next.number, self._hierarchy_writes(corpus), self._fact_writes(corpus)
        return [
            facts.set_vector(number, FactId(item.id), source, kept.vectors[item, text])
            if item.is_fact
            else nodes.set_vector(number, NodeId(item.id), source, kept.vectors[item, text])
            for item, source, text in texts
        ]

    def _embedded(self, texts: Sequence[EmbeddedText]) -> Iterable[bytes]:
        if not texts:
            return ()
        try:
            return map(packed, embed_or_refuse(self._embedders.own, [one.text for one in texts]))
        except TextRefused as refused:
            item = texts[refused.position].item
            what = "fact" if item.is_fact else "chunk"
            message = f"{what} {item.id} cannot be embedded: its text {refused.problem.value}; remove or change it"
            raise NotReady(Reason.MODEL_MISMATCH, message) from refused

    def _plan(
        self,
        corpus: Corpus,
        base: Revision,
        writes: Iterable[Write],
        after: Migration,
        sections: tuple[NodeId, ...] = (),
    ) -> Plan[Sliced]:
        """A revision, and in the same transaction how far the migration is with it."""
        keys = self._reviser.keys.of_corpus(corpus.number)

        def finish(tr: Transaction, trail: Trail, _revision: Revision) -> None:
            embeddings.put_migration(tr, keys, after)
            trail.detail["migration"] = {"model": after.name, "done": after.done, "total": after.total}

        return Plan(
            base=base,
            number=self._reviser.make_keys(corpus, []),
            writes=writes,
            sections=sections,
            documents_added=(),
            documents_removed=(),
            sources=(),
            result=lambda revision: Sliced(revision, after.done),
            finish=finish,
        )

    def _state(self, corpus: Corpus, base: Revision) -> tuple[Embeddings | None, Migration | None]:
        return self._snapshot(corpus, base).read(
            lambda view: (embeddings_of(view), embeddings.migration(view.tr, view.keys))
        )

    def _snapshot(self, corpus: Corpus, revision: Revision) -> BatchedReads:
        return self._reviser.batched(corpus, revision)

    def _hierarchy_writes(self, corpus: Corpus) -> HierarchyWrites:
        reviser = self._reviser
        return HierarchyWrites(reviser.keys, corpus.tenant_id, corpus.number, reviser.keyring)

    def _fact_writes(self, corpus: Corpus) -> FactWrites:
        reviser = self._reviser
        return FactWrites(reviser.keys, corpus.tenant_id, corpus.number, reviser.keyring, 0)

    def _call(self, corpus: Corpus) -> Call:
        request = RequestId(f"migration of {corpus.id} {uuid4()}")
        return Call("MigrateEmbeddings", request, SERVER, datetime.now(UTC), _TIMEOUT_S, request.encode())


def _target(corpus: Corpus) -> Target:
    return Target(corpus.tenant_id, corpus.id, by_server=True)


def _count(snapshot: BatchedReads, models: Embeddings) -> int:
    """Of chunks and facts with a vector."""
    keys, number = snapshot.keys, models.current.number
    return sum(1 for space in (keys.vectors(number), keys.fact_vectors(number)) for _ in snapshot.entries(space))


def _unused(snapshot: BatchedReads, models: Embeddings, begin: bytes) -> Iterator[versioned.Entry]:
    """The vectors of models that are not used, from a key on."""
    keys, used = snapshot.keys, sorted({models.current.number, *([models.next.number] if models.next else [])})
    for whole, of_model in ((keys.all_vectors(), keys.vectors), (keys.all_fact_vectors(), keys.fact_vectors)):
        start = whole.begin
        for space in [*map(of_model, used), KeyRange(whole.end, whole.end)]:
            gap = KeyRange(max(start, begin), space.begin)
            if gap.begin < gap.end:
                yield from snapshot.entries(gap)
            start = space.end


def migrate_embeddings(migrator: Migrator, call: Call, target: Target, report: Callable[[Progress], None]) -> Progress:
    """Changes a corpus to the server's own model; returns when that is done. `report` hears how far it is.

    The call's record is that of its beginning. What follows are the server's own revisions, which go on by themselves
    if this ends before them.
    """
    corpus = migrator.begin(call, target)
    return migrator.run(corpus, report)


def resume_migrations(
    engine: Engine, keys: Keyspace, migrator: Migrator, own: Model
) -> Iterator[tuple[Corpus, Progress | Exception]]:
    """Goes on with every migration to the server's own model that is not finished; each with how far it got, or why
    it did not."""
    for corpus in engine.run(lambda tr: list(_unfinished(tr, keys, own))):
        try:
            yield corpus, migrator.run(corpus, lambda _: None)
        except Exception as error:
            yield corpus, error


def _unfinished(tr: Reader, keys: Keyspace, own: Model) -> Iterator[Corpus]:
    for one in embeddings.migrations(tr, keys):
        if one.finished_at is None and one.model == own:
            try:
                yield corpora.get(tr, keys, one.tenant, one.corpus)
            except Missing:
                continue


def get_migration(reads: CorpusReads, call: Call, *, tenant: TenantId | None, corpus: CorpusId) -> Progress:
    """The model of a corpus, and how far a change to another one is, or was."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Progress:
        view = reads.at(tr, granted, trail, corpus, AsOf())
        return Progress(embeddings_of(view), embeddings.migration(tr, view.keys), view.revision)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)

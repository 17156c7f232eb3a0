"""MigrateEmbeddings and GetMigration: changes the embedding model of a corpus while it is searched and written.

    begin -> add vectors of the next model, some hundred in a revision
          -> flip: one revision makes the next model current
          -> remove the vectors of former models, some thousand in a revision -> finished

The progress is in the store, so a migration may stop anywhere and continue later, on any server. Several servers may
work on one migration: each slice is planned on the head, and a server that was overtaken plans again and finds less to
do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, groupby, islice
from typing import Any, Final, NamedTuple
from uuid import uuid4

from drillcore_fdb.engine import Engine, Reader, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.embeddings.missing_vectors import Item, ItemText, ItemTexts, MissingVectors, SectionSums
from drillcore_server.facts.block_writes import FactWrites
from drillcore_server.facts.store import stored_vectors
from drillcore_server.hierarchy.store import HierarchyWrites
from drillcore_server.kernel import access
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel.access import SERVER, InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, BatchedReads, CorpusReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Missing, NotReady, Unavailable
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, errors_as_refusals
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import BlockId, CorpusId, CorpusNumber, NodeId, RequestId, Revision, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.vectors.corpus_models import all_migrations, embeddings_of, migration_of, put_migration
from drillcore_server.vectors.embedding.embedders import Embedders, TextRefused, embed_or_refuse, model_of
from drillcore_server.vectors.index_follower import IndexFollower
from drillcore_server.vectors.model import Embeddings, Migration, Model
from drillcore_server.vectors.stored_vectors import packed

SLICE_MAX: Final = 64
"""Chunks and blocks of facts whose vectors one revision adds: few enough that other writers hardly wait."""
CLEARED_MAX: Final = 2_000
"""Records of vectors that one revision removes."""
LAST_MAX: Final = 32
"""The most chunks and blocks whose vectors the flip itself adds, if others write all the time."""
_PATIENCE: Final = 5
"""How often the last few vectors are added before the flip, in the hope that none is missing."""
_TIMEOUT_S: Final = 30.0
_LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sliced:
    """What a revision of a migration did."""

    revision: Revision
    vectors: int


SLICED = RecordKind(Sliced)


class Progress(NamedTuple):
    """How far the migration of a corpus has come at its head."""

    models: Embeddings | None
    migration: Migration | None
    revision: Revision

    @property
    def is_finished(self) -> bool:
        return self.migration is None or self.migration.finished_at is not None


_SlicePlan = Plan[Sliced] | NothingToChange[Sliced]


def _nothing_to_do(base: Revision) -> NothingToChange[Sliced]:
    """For a step that another server has already made, or a migration that it has ended."""
    return NothingToChange(Sliced(base, 0))


@dataclass(slots=True)
class _RunState:
    """What one run keeps, so that it need not compute it again when others overtake it."""

    sums: SectionSums
    rounds: int = 0
    """The rounds before the flip in which only a few vectors were missing."""
    vectors: dict[tuple[Item, str], bytes] = field(default_factory=dict)
    """The new vectors of the slice that is being planned."""

    def of_chunks(self) -> dict[NodeId, bytes]:
        return {NodeId(item.id): vector for (item, _), vector in self.vectors.items() if not item.is_facts}


class Migrator:
    def __init__(
        self,
        reviser: Reviser,
        embedders: Embedders,
        indexes: Sequence[IndexFollower[Any]] = (),
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`indexes` are brought into memory before the flip.

        `stopping` tells whether the server stops: a migration then ends after its present slice.
        """
        self._reviser = reviser
        self._embedders = embedders
        self._indexes = indexes
        self._stopping = stopping
        self._lock = threading.Lock()
        self._under_way: dict[CorpusNumber, threading.Lock] = {}

    def begin(self, call: Call, target: Target) -> Corpus:
        """Begins a migration to the server's own model in one revision, and returns the corpus.

        Changes nothing if that migration has begun or is not needed. May be run again.
        """
        planned: list[Corpus] = []

        def plan(snapshot: BatchedReads) -> _SlicePlan:
            planned[:] = [snapshot.corpus]
            return self._begin(call, snapshot)

        self._reviser.revise(call, target, SLICED, plan)
        return planned[0] if planned else self._reviser.find(call, target)[0]

    def _begin(self, call: Call, snapshot: BatchedReads) -> _SlicePlan:
        corpus, base = snapshot.corpus, snapshot.revision
        own = model_of(self._embedders.own)
        now = snapshot.read(embeddings_of)
        if now is None or (now.next.model if now.next else now.current.model) == own:
            return NothingToChange(Sliced(base, 0), self._reviser.make_keys(corpus, []))
        after = now.dropped() if now.current.model == own else now.begun(own)
        total = _count(snapshot, now) if after.next else 0
        begun = Migration(corpus.tenant_id, corpus.id, *own, call.at, total, since=base)
        return self._plan(corpus, base, [self._hierarchy_writes(corpus).set_embeddings(after)], begun)

    def progress(self, corpus: Corpus) -> Progress:
        with self._reviser.engine.reads() as reads, errors_as_refusals():
            _, head = self._reviser.find(self._call(corpus), _target(corpus), reads)
            models, migration = self._state(self._reviser.batched(corpus, head, reads))
        return Progress(models, migration, head)

    def run(self, corpus: Corpus, report: Callable[[Progress], None]) -> Progress:
        """Continues a migration until it is finished. Calls `report` before every step.

        Raises `Refused` if it cannot continue now. What was done is kept, and the call may be run again.
        """
        with self._alone(corpus, report):
            run_state: _RunState | None = None
            while not (progress := self.progress(corpus)).is_finished:
                report(progress)
                self._check_stopping()
                following = progress.models.next if progress.models else None
                if following is not None and (run_state is None or run_state.sums.model != following.number):
                    run_state = _RunState(SectionSums(following.number))
                self._step(corpus, progress, run_state)
            return progress

    @contextmanager
    def _alone(self, corpus: Corpus, report: Callable[[Progress], None]) -> Iterator[None]:
        """Lets one run of this server work on the corpus; others wait and report its progress.

        Two runs at once would do no harm, but repeat each other's work.
        """
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
            message = "the server is stopping; the migration continues after its next start"
            raise Unavailable(Reason.SHUTTING_DOWN, message)

    def _step(self, corpus: Corpus, progress: Progress, run_state: _RunState | None) -> None:
        """Makes one revision."""
        models, migration = progress.models, progress.migration
        assert models is not None
        assert migration is not None
        if models.next is None:
            self._revise(corpus, self._clear)
            return
        assert run_state is not None
        self._check_model(models)
        if migration.cursor is not None:
            self._revise(corpus, lambda snapshot: self._slice(snapshot, run_state))
        else:
            self._revise(corpus, lambda snapshot: self._flip(snapshot, run_state))

    def _check_model(self, models: Embeddings) -> None:
        own = model_of(self._embedders.own)
        if models.next is not None and models.next.model != own:
            message = (
                f"the corpus is being changed to {models.next.model}, but this server has {own}; call "
                "MigrateEmbeddings to change the corpus to that, or call it on a server that has the other model"
            )
            raise NotReady(Reason.MODEL_MISMATCH, message)

    def _revise(self, corpus: Corpus, make_plan: Callable[[BatchedReads], _SlicePlan]) -> None:
        """Commits one planned revision. Gives up without an error if others were faster too often: the next step plans
        again."""
        call = self._call(corpus)
        try:
            self._reviser.revise(call, _target(corpus), SLICED, make_plan)
        except Unavailable as refused:
            if refused.reason is not Reason.CONFLICT:
                raise

    def _slice(self, snapshot: BatchedReads, run_state: _RunState) -> _SlicePlan:
        """Plans the next slice of the walk through all vectors that existed when the migration began."""
        corpus, base = snapshot.corpus, snapshot.revision
        models, migration = self._state(snapshot)
        if models is None or migration is None or models.next is None or migration.cursor is None:
            return _nothing_to_do(base)
        missing = MissingVectors(snapshot, models)
        found = missing.from_key(migration.cursor, SLICE_MAX)
        writes, count = self._vector_writes(corpus, missing, found.missing, run_state)
        done = migration.done + count
        after = replace(migration, done=done, total=max(done, migration.total), cursor=found.following)
        return self._plan(corpus, base, writes, after)

    def _flip(self, snapshot: BatchedReads, run_state: _RunState) -> _SlicePlan:
        """Plans the flip if every item has its new vector, or nearly; else another slice of missing vectors."""
        corpus, base = snapshot.corpus, snapshot.revision
        models, migration = self._state(snapshot)
        if models is None or migration is None or models.next is None or migration.cursor is not None:
            return _nothing_to_do(base)
        missing = MissingVectors(snapshot, models)
        found = missing.changed_since(migration.since)
        some = found.missing[:SLICE_MAX]
        writes, count = self._vector_writes(corpus, missing, some, run_state)
        writes += [Write(missing.next_key(item), None) for item in found.stray]
        done = migration.done + count
        after = replace(migration, done=done, total=max(done, migration.total))
        if found.missing and (len(found.missing) > LAST_MAX or run_state.rounds < _PATIENCE):
            run_state.rounds += len(found.missing) <= LAST_MAX
            looked_at = migration.since if len(found.missing) > SLICE_MAX else base
            return self._plan(corpus, base, writes, replace(after, since=looked_at))
        self._prepare_indexes(corpus, snapshot, models.next.number, is_whole=not found.missing)
        run_state.sums.bring_up_to(snapshot, run_state.of_chunks())
        make = self._hierarchy_writes(corpus)
        flip = chain(writes, [make.set_embeddings(models.flipped())], run_state.sums.writes(snapshot, make))
        flipped = replace(after, total=done, cursor=b"", flipped_at=datetime.now(UTC))
        return self._plan(corpus, base, flip, flipped, tuple(sorted(run_state.sums.sums)))

    def _prepare_indexes(self, corpus: Corpus, snapshot: BatchedReads, model: int, *, is_whole: bool) -> None:
        for index in self._indexes:
            if is_whole:
                snapshot.read(lambda view, index=index: index.warm(view, model))  # type: ignore[misc]
            else:
                index.forget(corpus.number, model)

    def _clear(self, snapshot: BatchedReads) -> _SlicePlan:
        """Plans to remove vectors of former models. The last slice also finishes the migration."""
        corpus, base = snapshot.corpus, snapshot.revision
        models, migration = self._state(snapshot)
        if models is None or migration is None or models.next is not None or migration.finished_at is not None:
            return _nothing_to_do(base)
        begin = migration.cursor or b""
        keys = [entry.key for entry in islice(_unused(snapshot, models, begin), CLEARED_MAX)]
        writes = [Write(key, None) for key in keys]
        if len(keys) == CLEARED_MAX:
            return self._plan(corpus, base, writes, replace(migration, cursor=versioned.behind(keys[-1])))
        make = self._hierarchy_writes(corpus)
        writes.append(make.set_embeddings(replace(models, former=())))
        return self._plan(corpus, base, writes, replace(migration, cursor=None, finished_at=datetime.now(UTC)))

    def _vector_writes(
        self, corpus: Corpus, missing: MissingVectors, items: Sequence[Item], run_state: _RunState
    ) -> tuple[list[Write], int]:
        """Writes the items' vectors of the next model, and counts them. Vectors that an overtaken plan made are used
        again."""
        texts = ItemTexts(missing.snapshot, missing.models.current.number).of(items)
        wanted = {(text.item, text.text): text for text in texts}
        new = [text for key, text in wanted.items() if key not in run_state.vectors]
        made = {(text.item, text.text): vector for text, vector in zip(new, self._embedded(new), strict=True)}
        run_state.vectors = {key: made[key] if key in made else run_state.vectors[key] for key in wanted}
        self._reviser.make_keys(corpus, {text.source for text in texts})
        assert missing.models.next is not None
        number, nodes, facts = missing.models.next.number, self._hierarchy_writes(corpus), self._fact_writes(corpus)
        writes: list[Write] = []
        for item, own in groupby(texts, lambda text: text.item):
            made_of = [(text, run_state.vectors[item, text.text]) for text in own]
            source = made_of[0][0].source
            if item.is_facts:
                vectors = {text.fact: vector for text, vector in made_of if text.fact is not None}
                writes.append(facts.set_vectors(number, BlockId(item.id), source, vectors))
            else:
                writes.append(nodes.set_vector(number, NodeId(item.id), source, made_of[0][1]))
        return writes, len(texts)

    def _embedded(self, texts: Sequence[ItemText]) -> Iterable[bytes]:
        if not texts:
            return ()
        try:
            return map(packed, embed_or_refuse(self._embedders.own, [text.text for text in texts]))
        except TextRefused as refused:
            text = texts[refused.position]
            what = f"chunk {text.item.id}" if text.fact is None else f"fact {text.fact}"
            message = f"{what} cannot be embedded: its text {refused.problem.value}; remove or change it"
            raise NotReady(Reason.MODEL_MISMATCH, message) from refused

    def _plan(
        self,
        corpus: Corpus,
        base: Revision,
        writes: Iterable[Write],
        after: Migration,
        sections: tuple[NodeId, ...] = (),
    ) -> Plan[Sliced]:
        """Makes the plan of a revision that stores the migration's progress in the same transaction."""
        keys = self._reviser.keys.of_corpus(corpus.number)

        def finish(tr: Transaction, trail: Trail, _revision: Revision) -> None:
            put_migration(tr, keys, after)
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

    @staticmethod
    def _state(snapshot: BatchedReads) -> tuple[Embeddings | None, Migration | None]:
        return snapshot.read(lambda view: (embeddings_of(view), migration_of(view.tr, view.keys)))

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
    """Counts the chunks and facts that have a vector of the current model."""
    number = models.current.number
    chunks = sum(1 for _ in snapshot.entries(snapshot.keys.vectors(number)))
    return chunks + sum(1 for _ in stored_vectors(snapshot, number))


def _unused(snapshot: BatchedReads, models: Embeddings, begin: bytes) -> Iterator[versioned.Entry]:
    """Yields the vectors of all models except the current and the next, from a key on."""
    keys, used = snapshot.keys, sorted({models.current.number, *([models.next.number] if models.next else [])})
    for whole, of_model in ((keys.all_vectors(), keys.vectors), (keys.all_fact_vectors(), keys.fact_vectors)):
        start = whole.begin
        for space in [*map(of_model, used), KeyRange(whole.end, whole.end)]:
            gap = KeyRange(max(start, begin), space.begin)
            if gap.begin < gap.end:
                yield from snapshot.entries(gap)
            start = space.end


def migrate_embeddings(migrator: Migrator, call: Call, target: Target, report: Callable[[Progress], None]) -> Progress:
    """Changes a corpus to the server's own model, and returns when that is done. Calls `report` before every step.

    The call's audit record covers the beginning. Everything after that are revisions of the server's own: if this call
    ends early, the server continues by itself. May be run again. Raises `Refused` as `Migrator.run` does.
    """
    corpus = migrator.begin(call, target)
    return migrator.run(corpus, report)


def resume_migrations(
    engine: Engine, keys: Keyspace, migrator: Migrator, own: Model
) -> Iterator[tuple[Corpus, Progress | Exception]]:
    """Continues every unfinished migration to the server's own model.

    Yields each corpus with its progress, or with the error that ended its migration.
    """
    for corpus in engine.run(lambda tr: list(_unfinished(tr, keys, own))):
        try:
            yield corpus, migrator.run(corpus, lambda _: None)
        except Exception as error:
            yield corpus, error


def _unfinished(tr: Reader, keys: Keyspace, own: Model) -> Iterator[Corpus]:
    for migration in all_migrations(tr, keys):
        if migration.finished_at is None and migration.model == own:
            try:
                yield corpora.get(tr, keys, migration.tenant, migration.corpus)
            except Missing:
                continue


def get_migration(reads: CorpusReads, call: Call, *, tenant: TenantId | None, corpus: CorpusId) -> Progress:
    """Returns the models of a corpus, and the progress of its last migration, if it ever had one."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Progress:
        view = reads.at(tr, granted, trail, corpus, AsOf())
        view.read_ahead([view.keys.embeddings()], keys=[view.keys.migration()])
        return Progress(embeddings_of(view), migration_of(tr, view.keys), view.revision)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)

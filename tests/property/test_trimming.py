"""Trimming against a plain model: every revision from the floor on reads as before, and nothing else is left.

The first test takes records of any kind, with many parts, in small pages. The second takes a whole corpus.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine, Transaction
from drillcore_server.kernel import retention
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusId, CorpusNumber, DocumentId, NodeId, PrincipalId, Revision, TenantId
from tests.storage.test_versioned import PART_BYTES, seen
from tests.support.stores.archive import SENTENCES, opened_archive, text_of
from tests.support.stores.archive_retention import Pages, hold, keep_days, readable, release, state, trim
from tests.support.stores.consistent import Hierarchy, check
from tests.support.stores.keyspaces import keyspace_below
from tests.support.stores.stores import opened

KEYSPACE = keyspace_below(b"t")
NUMBER, NEIGHBOUR = CorpusNumber(7), CorpusNumber(8)
NODES = [NodeId(UUID(int=number)) for number in (0, 1, (1 << 128) - 1)]
LAST = 9

Written = dict[bytes, dict[Revision, bytes | None]]


def logical_keys(number: CorpusNumber) -> list[bytes]:
    """Some keys of each kind, the first and the last among them. The index of citations has other rules."""
    keys, document = KEYSPACE.of_corpus(number), DocumentId(UUID(int=3))
    of_nodes = [key(node) for node in NODES for key in (keys.section, keys.chunk, keys.listed_section, keys.parent)] + [
        keys.vector(model, node) for node in NODES for model in (1, 255)
    ]
    members = [keys.member(node, document, 1, node) for node in NODES]
    more = [keys.document(document), keys.source(b"s" * 16), keys.entity(b"k" * 4, b"v" * 8, NODES[0])]
    return [keys.master(), *of_nodes, *members, *more, keys.category(b"c" * 8, NODES[2])]


values = st.none() | st.integers(0, 3 * PART_BYTES).map(lambda size: b"v" * size)
histories = st.dictionaries(st.integers(1, LAST).map(Revision), values, min_size=1, max_size=6)
written = st.dictionaries(st.sampled_from(logical_keys(NUMBER)), histories, max_size=12)


def corpus(number: CorpusNumber) -> Corpus:
    made = {"created_at": None, "created_by": PrincipalId("me"), "updated_at": None}
    return Corpus(CorpusId(UUID(int=1)), TenantId(UUID(int=2)), "c", "", {}, version=1, number=number, **made)  # type: ignore[arg-type]


def write(engine: Engine, records: Written) -> None:
    def work(tr: Transaction) -> None:
        for key, history in records.items():
            for revision, value in history.items():
                if value is None:
                    versioned.remove(tr, key, revision)
                else:
                    versioned.put(tr, key, revision, value)
        for number in (NUMBER, NEIGHBOUR):
            tr.set(KEYSPACE.of_corpus(number).head(), LAST.to_bytes(6, "big"))

    engine.run(work)


def stored(engine: Engine, number: CorpusNumber) -> set[tuple[bytes, Revision]]:
    spaces = KEYSPACE.of_corpus(number).by_revision()

    def work(tr: Transaction) -> set[tuple[bytes, Revision]]:
        return {(entry.key, entry.revision) for space in spaces for entry in versioned.entries(tr, *space)}

    return engine.run(work)


def kept(records: Written, floor: Revision) -> set[tuple[bytes, Revision]]:
    """By definition, an entry stays if a reader from the floor on sees it, or needs it to see that a key is gone."""
    return {
        (key, at)
        for key, history in records.items()
        for at, value in history.items()
        if at > floor or (value is not None and at == max(revision for revision in history if revision <= floor))
    }


def trim_all(engine: Engine, floor: Revision) -> int:
    engine.run(lambda tr: retention.raise_floor(tr, KEYSPACE.of_corpus(NUMBER), floor))
    removed, finished = 0, False
    while not finished:
        count, now = engine.run(lambda tr: retention.trim_page(tr, KEYSPACE, corpus(NUMBER)))
        removed, finished = removed + count, now.finished
    return removed


@settings(max_examples=150, deadline=None)
@given(
    records=written, floors=st.lists(st.integers(1, LAST).map(Revision), min_size=1, max_size=3), page=st.integers(1, 5)
)
def test_only_records_visible_from_the_floor_on_stay(records: Written, floors: list[Revision], page: int) -> None:
    with contextlib.ExitStack() as open_now:
        path = Path(open_now.enter_context(tempfile.TemporaryDirectory()))
        engine = open_now.enter_context(opened(path))
        patch = open_now.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(codec, "PART_BYTES", PART_BYTES)
        patch.setattr(retention, "PAGE_ENTRIES", page)
        neighbours = dict(zip(logical_keys(NEIGHBOUR), records.values(), strict=False))
        write(engine, records)
        write(engine, neighbours)
        every = {(key, at) for key, history in records.items() for at in history}
        for floor in sorted(floors):
            removed = trim_all(engine, floor)
            assert stored(engine, NUMBER) == kept(records, floor)
            assert removed == len(every) - len(kept(records, floor))
            every = kept(records, floor)
            for revision in map(Revision, range(floor, LAST + 1)):
                for key in records:
                    found = engine.run(lambda tr, k=key, r=revision: versioned.get(tr, k, r))  # type: ignore[misc]
                    assert found == seen(records, key, revision)
        assert stored(engine, NEIGHBOUR) == {(key, at) for key, history in neighbours.items() for at in history}


texts = st.builds(text_of, st.sampled_from(sorted(SENTENCES)), st.integers(1, 3), st.integers(1, 4))
batches = st.dictionaries(st.sampled_from([f"source-{number}" for number in range(5)]), texts, min_size=1, max_size=3)


class TrimmedCorpus(RuleBasedStateMachine):
    """Documents are added and removed, and the corpus is trimmed in small pages, with pauses and holds in between."""

    def __init__(self) -> None:
        super().__init__()
        self.open_now = contextlib.ExitStack()
        patch = self.open_now.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(retention, "PAGE_ENTRIES", 40)
        path = Path(self.open_now.enter_context(tempfile.TemporaryDirectory()))
        self.archive = self.open_now.enter_context(opened_archive(path))
        keep_days(self.archive, 1)
        self.known: list[Hierarchy] = []
        """Each revision that can be read, as it was when it was the head."""

    def teardown(self) -> None:
        self.open_now.close()

    @rule(batch=batches)
    def add(self, batch: dict[str, str]) -> None:
        if self.archive.add(batch).revision > self._newest():
            self.known.append(self._seen(self.archive.head()))

    @precondition(lambda self: self.known and self.known[-1].texts)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.known[-1].texts)), min_size=1))
        documents = self.archive.documents()
        self.archive.remove([documents[source] for source in gone])
        self.known.append(self._seen(self.archive.head()))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), pages=st.integers(1, 6))
    def trim(self, data: st.DataObject, pages: int) -> None:
        to = data.draw(st.sampled_from([known.revision for known in self.known]))
        done = trim(self.archive, to, Pages.of(pages))
        assert done.oldest >= to
        self._forget(done.oldest)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def trim_to_the_end(self, data: st.DataObject) -> None:
        to = data.draw(st.sampled_from([known.revision for known in self.known]))
        done = trim(self.archive, to)
        assert done.finished
        self._forget(done.oldest)
        check(self.archive)  # also checks that every index and locator leads to a record
        again = trim(self.archive, to)
        assert (again.removed, again.finished) == (0, True)

    @precondition(lambda self: self.known)
    @rule()
    def hold_and_release(self) -> None:
        hold(self.archive)
        release(self.archive)

    def _newest(self) -> Revision:
        return self.known[-1].revision if self.known else Revision(0)

    def _forget(self, floor: Revision) -> None:
        self.known = [known for known in self.known if known.revision >= floor]
        assert self.known
        assert state(self.archive).floor == floor
        for known in self.known:
            assert readable(self._seen(known.revision)) == readable(known)

    def _seen(self, revision: Revision) -> Hierarchy:
        return check(self.archive, revision, trimming=not state(self.archive).finished)


TrimmedCorpus.TestCase.settings = settings(max_examples=15, stateful_step_count=8, deadline=None)
TestTrimmedCorpus = TrimmedCorpus.TestCase

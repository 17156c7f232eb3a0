"""Records by revision against a plain model, which keeps for each key what was written at which revision."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from drillcore_fdb import codec
from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import Subspace, prefix_end
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusNumber, NodeId, Revision
from drillcore_server.storage.versioned import Entry
from tests.support.stores.keyspaces import keyspace_below
from tests.support.stores.stores import opened

_ROOT = Subspace(b"versioned")
_CORPORA = [keyspace_below(_ROOT.prefix).of_corpus(CorpusNumber(number)) for number in (0, 5, 0xFF, 0xFFFF)]
_NODES = [NodeId(UUID(int=number)) for number in (0, 1, (1 << 128) - 1)]
KEYS = [keys.master() for keys in _CORPORA[1:]] + [_CORPORA[2].section(node) for node in _NODES]
"""Keys as they occur in a store: the key of a master is the bare prefix of its corpus."""
PART_BYTES = 64
"""Instead of 90,000, so that small records have as many parts and the test takes much less time."""
SIZES = [0, 9, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 2 * PART_BYTES + 1, 4 * PART_BYTES + 7]
LAST = 260
"""More than a byte holds, so that revisions carry over into a second byte."""

keys = st.sampled_from(KEYS)
revisions = st.sampled_from([0, 1, 2, 255, 256, LAST]).map(Revision)
values = st.builds(lambda size, fill: bytes([fill]) * size, st.sampled_from(SIZES), st.integers(0, 255))

Model = dict[bytes, dict[Revision, bytes | None]]


def seen(model: Model, key: bytes, revision: Revision) -> Entry | None:
    """The entry that a reader at the revision must see."""
    written = [at for at in model.get(key, {}) if at <= revision]
    value = model[key][max(written)] if written else None
    return None if value is None else Entry(key, max(written), value)


class VersionedRecords(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        path = Path(self.directory.name)
        self.engine = EmbeddedEngine.open(EmbeddedSettings(path=path, durability=Durability.RELAXED))
        self.model: Model = {}
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(codec, "PART_BYTES", PART_BYTES)

    def teardown(self) -> None:
        self.patch.undo()
        self.engine.close()
        self.directory.cleanup()

    @rule(key=keys, revision=revisions, value=values)
    def put(self, key: bytes, revision: Revision, value: bytes) -> None:
        self.engine.run(lambda tr: versioned.put(tr, key, revision, value))
        self.model.setdefault(key, {})[revision] = value

    @rule(key=keys, revision=revisions)
    def remove(self, key: bytes, revision: Revision) -> None:
        self.engine.run(lambda tr: versioned.remove(tr, key, revision))
        self.model.setdefault(key, {})[revision] = None

    @rule(key=keys, revision=revisions, values=st.lists(st.one_of(st.none(), values), min_size=2, max_size=3))
    def write_in_one_transaction(self, key: bytes, revision: Revision, values: list[bytes | None]) -> None:
        def work(tr: versioned.Transaction) -> Entry | None:
            for value in values:
                if value is None:
                    versioned.remove(tr, key, revision)
                else:
                    versioned.put(tr, key, revision, value)
            return versioned.get(tr, key, revision)

        self.model.setdefault(key, {})[revision] = values[-1]
        assert self.engine.run(work) == seen(self.model, key, revision)

    @rule(key=keys, revision=revisions)
    def get(self, key: bytes, revision: Revision) -> None:
        assert self.engine.run(lambda tr: versioned.get(tr, key, revision)) == seen(self.model, key, revision)

    @rule(bounds=st.tuples(keys, keys).map(sorted), revision=revisions)
    def scan(self, bounds: list[bytes], revision: Revision) -> None:
        begin, end = bounds[0], prefix_end(bounds[1])
        found = self.engine.run(lambda tr: list(versioned.scan(tr, begin, end, revision)))
        expected = [seen(self.model, key, revision) for key in sorted(KEYS) if begin <= key < end]
        assert found == [entry for entry in expected if entry is not None]

    @rule(bounds=st.tuples(keys, keys).map(sorted), revision=revisions, size=st.integers(1, 12))
    def pages(self, bounds: list[bytes], revision: Revision, size: int) -> None:
        """All pages together have the entries of a scan, however small the pages are."""
        begin, end = bounds[0], prefix_end(bounds[1])
        expected = self.engine.run(lambda tr: list(versioned.scan(tr, begin, end, revision)))
        found: list[Entry] = []
        following: bytes | None = begin
        while following is not None:
            page, following = self.engine.run(lambda tr, b=following: versioned.page(tr, b, end, revision, size))  # type: ignore[misc]
            found += page
        assert found == expected

    @rule(key=keys, revision=revisions)
    def last_record(self, key: bytes, revision: Revision) -> None:
        at_or_before = [at for at, value in self.model.get(key, {}).items() if at <= revision and value is not None]
        assert self.engine.run(lambda tr: versioned.last_there(tr, key, revision)) == max(at_or_before, default=None)

    @rule(bounds=st.tuples(keys, keys).map(sorted), revision=revisions)
    def last_key(self, bounds: list[bytes], revision: Revision) -> None:
        begin, end = bounds[0], prefix_end(bounds[1])
        present = [key for key in KEYS if begin <= key < end and seen(self.model, key, revision) is not None]
        assert self.engine.run(lambda tr: versioned.last_key(tr, begin, end, revision, 1_000)) == max(
            present, default=None
        )

    @invariant()
    def every_key_reads_as_the_model_says_now_and_at_the_beginning(self) -> None:
        for revision in (Revision(0), Revision(LAST)):
            read = self.engine.run(lambda tr, r=revision: [versioned.get(tr, key, r) for key in KEYS])  # type: ignore[misc]
            assert read == [seen(self.model, key, revision) for key in KEYS]

    @invariant()
    def the_history_of_every_key_is_what_was_written(self) -> None:
        for key, written in self.model.items():
            found = self.engine.run(lambda tr, k=key: list(versioned.versions(tr, k)))  # type: ignore[misc]
            assert [(version.revision, version.value) for version in found] == sorted(written.items(), reverse=True)


VersionedRecords.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestVersionedRecords = VersionedRecords.TestCase


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path) as engine:
        yield engine


LARGE, LESS_LARGE, SMALL = (bytes([size]) * (size * codec.PART_BYTES + 1) for size in (3, 1, 0))


@pytest.mark.parametrize("value", [LESS_LARGE, SMALL, b""], ids=["less large", "small", "empty"])
def test_a_record_rewritten_at_its_revision_has_nothing_of_the_larger_record_before(
    engine: EmbeddedEngine, value: bytes
) -> None:
    key = KEYS[0]
    for written in (LARGE, value):
        engine.run(lambda tr, v=written: versioned.put(tr, key, Revision(1), v))  # type: ignore[misc]
    expected = Entry(key, Revision(1), value)
    assert engine.run(lambda tr: versioned.get(tr, key, Revision(1))) == expected
    assert engine.run(lambda tr: list(versioned.scan(tr, key, prefix_end(key), Revision(9)))) == [expected]


def test_a_large_record_that_lost_a_part_is_refused(engine: EmbeddedEngine) -> None:
    key = KEYS[0]
    engine.run(lambda tr: versioned.put(tr, key, Revision(1), LARGE))
    engine.run(lambda tr: tr.clear(key + Revision(1).to_bytes(6, "big") + b"\0\2"))
    with pytest.raises(StoreCorruptError):
        engine.run(lambda tr: versioned.get(tr, key, Revision(1)))
    with pytest.raises(StoreCorruptError):
        engine.run(lambda tr: list(versioned.scan(tr, key, prefix_end(key), Revision(1))))


def test_a_record_that_a_later_revision_removed_is_still_there_before_it(engine: EmbeddedEngine) -> None:
    key = KEYS[0]
    engine.run(lambda tr: versioned.put(tr, key, Revision(1), LARGE))
    engine.run(lambda tr: versioned.remove(tr, key, Revision(2)))
    engine.run(lambda tr: versioned.put(tr, key, Revision(4), SMALL))
    read = [engine.run(lambda tr, r=r: versioned.get(tr, key, Revision(r))) for r in range(5)]  # type: ignore[misc]
    assert [entry.value if entry else None for entry in read] == [None, LARGE, None, None, SMALL]


@pytest.mark.parametrize("at_once", [1, 2, 3, 64])
def test_the_versions_of_a_key_come_newest_first_in_pages_of_any_size(engine: EmbeddedEngine, at_once: int) -> None:
    key, values = KEYS[0], [LARGE, None, SMALL, LARGE, LARGE]
    for revision, value in enumerate(values, 1):
        if value is None:
            engine.run(lambda tr, r=revision: versioned.remove(tr, key, Revision(r)))  # type: ignore[misc]
        else:
            engine.run(lambda tr, r=revision, v=value: versioned.put(tr, key, Revision(r), v))  # type: ignore[misc]
    with mock.patch.object(versioned, "_VERSIONS_MAX", at_once):
        found = engine.run(lambda tr: list(versioned.versions(tr, key)))
        up_to_three = engine.run(lambda tr: list(versioned.versions(tr, key, Revision(3))))
    assert [(version.revision, version.value) for version in found] == list(enumerate(values, 1))[::-1]
    assert up_to_three == found[2:]

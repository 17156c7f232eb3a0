"""Vector indexes against a plain model: a dictionary that is searched by comparing everything.

States are made, split, grown into graphs, rebuilt, saved and loaded in any order. Each state is compared at the end.
"""

from __future__ import annotations

import io
import tempfile
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drillcore_fdb.tuples import Subspace
from drillcore_server.kernel.telemetry import LogFormat, make_logger
from drillcore_server.storage.ids import CorpusNumber, Revision
from drillcore_server.storage.keyring import Keyring
from drillcore_server.vectors import index_keeper as index_upkeep
from drillcore_server.vectors.index_snapshots import IndexName, IndexSnapshots, SavedAt
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import VectorIndex
from tests.support.data.vectors import Items, Row, ids, index_of, never, numbered_id, plain_search
from tests.support.stores.stores import opened

SETTINGS = VectorSettings(exact_below=8, tail_max=4, build_threads=1)
NAME = IndexName(CorpusNumber(1), "facts", 1)
NUMBERS = st.integers(0, 60)
FEW = st.lists(NUMBERS, max_size=25, unique=True)


def row(seed: int) -> Row:
    """A vector for a seed. A few are equal: ties are broken by ids."""
    return np.random.default_rng(seed % 40).standard_normal(4).astype(np.float16)


class Indexes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._open = ExitStack()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        keyring = Keyring(self._open.enter_context(opened(folder / "keyring")), Subspace(b"k"), bytes(32))
        log = make_logger(LogFormat.JSON, io.StringIO())
        self.snapshots = IndexSnapshots(folder / "indexes", keyring, SETTINGS, log)
        self.states: list[tuple[VectorIndex[UUID], Items]] = []

    @initialize(numbers=FEW)
    def begin(self, numbers: list[int]) -> None:
        model = {numbered_id(number): row(number) for number in numbers}
        self.states.append((index_of(model, SETTINGS), model))

    @rule(data=st.data(), came=FEW, gone=FEW, seed=st.integers(0, 1_000))
    def change(self, data: st.DataObject, came: list[int], gone: list[int], seed: int) -> None:
        """Starts from any state, so that several states follow from the same one."""
        index, model = data.draw(st.sampled_from(self.states))
        changes: dict[UUID, Row | None] = dict.fromkeys(map(numbered_id, gone))
        changes |= {numbered_id(number): row(seed + number) for number in came}
        after = {identity: known for identity, known in (model | changes).items() if known is not None}
        self.states.append((index.changed(changes), after))

    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        index, _ = data.draw(st.sampled_from(self.states))
        if index_upkeep.wants_graph(index):
            index_upkeep.grow_graph(index, never)

    @rule(data=st.data())
    def rebuild(self, data: st.DataObject) -> None:
        index, model = data.draw(st.sampled_from(self.states))
        fresh = index_upkeep.rebuilt(index, never)
        assert fresh is not None
        assert fresh.gone == 0
        self.states.append((fresh, model))

    @precondition(lambda self: len(self.states) > 1)
    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        index, _ = data.draw(st.sampled_from(self.states))
        now, model = data.draw(st.sampled_from([state for state in self.states if state[0].log is index.log]))
        if len(now.members) >= len(index.members):
            fresh = index_upkeep.rebuilt(index, never)
            assert fresh is not None
            self.states.append((index_upkeep.caught_up(fresh, index, now), model))

    @rule(data=st.data())
    def save_and_load(self, data: st.DataObject) -> None:
        index, model = data.draw(st.sampled_from(self.states))
        at = SavedAt(Revision(1), UUID(int=1))
        self.snapshots.save(NAME, at, index, self.snapshots.key(NAME))
        loaded: tuple[SavedAt, VectorIndex[UUID]] | None = self.snapshots.load(NAME)
        assert loaded is not None
        self.states.append((loaded[1], model))

    @rule(data=st.data(), seed=st.integers(0, 100), k=st.integers(1, 70), allowed=st.none() | FEW)
    def search(self, data: st.DataObject, seed: int, k: int, allowed: list[int] | None) -> None:
        index, model = data.draw(st.sampled_from(self.states))
        among = None if allowed is None else set(map(numbered_id, allowed))
        expected = plain_search(model, row(seed), k, among)
        exact = index.search(row(seed), k, among, exact=True)
        assert ids(exact) == ids(expected)
        assert [score for _, score in exact] == pytest.approx([score for _, score in expected], abs=2e-6)
        near = index.search(row(seed), k, among)
        assert len(near) == len(exact)
        assert set(ids(near)) <= (model.keys() if among is None else model.keys() & among)

    @invariant()
    def every_state_has_its_own(self) -> None:
        for index, model in self.states:
            assert sorted(index.ids()) == sorted(model)
            assert len(index) == len(model)

    def teardown(self) -> None:
        for index, model in self.states:
            for identity, known in model.items():
                assert np.array_equal(index.kept(identity), known)
        self._open.close()


TestIndexes = Indexes.TestCase
TestIndexes.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)

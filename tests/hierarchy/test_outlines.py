"""Outlines brought up to date are those that would be read anew."""

from __future__ import annotations

from uuid import UUID

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.hierarchy.sections import Outline, Outlines
from drillcore_server.storage.ids import NodeId

IDS = st.integers(1, 12).map(lambda number: NodeId(UUID(int=number)))
SUMS = st.lists(st.integers(-9, 9), min_size=3, max_size=3).map(lambda one: np.array(one, "<f4").tobytes())


def outline(section: NodeId, vector_sum: bytes) -> Outline:
    return Outline(section, str(section), (), (), (), vector_sum)


@given(st.dictionaries(IDS, SUMS), st.dictionaries(IDS, st.none() | SUMS))
def test_changes_give_what_reading_anew_would(before: dict[NodeId, bytes], changes: dict[NodeId, bytes | None]) -> None:
    kept = Outlines.of(outline(*one) for one in before.items())
    changed = kept.changed({one: None if value is None else outline(one, value) for one, value in changes.items()})
    after = {one: value for one, value in (before | changes).items() if value is not None}
    anew = Outlines.of(outline(*one) for one in after.items())
    assert changed.by_id == anew.by_id
    assert changed.ids == anew.ids == tuple(sorted(after))
    assert np.array_equal(changed.rows, anew.rows) or not after
    assert kept.ids == tuple(sorted(before)), "what is kept is never changed"

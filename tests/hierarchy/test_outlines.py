"""Updated outlines equal outlines that are read anew."""

from __future__ import annotations

from uuid import UUID

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.hierarchy.sections import Outline, Outlines
from drillcore_server.storage.ids import NodeId

IDS = st.integers(1, 12).map(lambda number: NodeId(UUID(int=number)))
SUMS = st.lists(st.integers(-9, 9), min_size=3, max_size=3).map(lambda numbers: np.array(numbers, "<f4").tobytes())


def outline(section: NodeId, vector_sum: bytes) -> Outline:
    return Outline(section, str(section), (), (), (), vector_sum)


@given(st.dictionaries(IDS, SUMS), st.dictionaries(IDS, st.none() | SUMS))
def test_changed_outlines_equal_outlines_that_are_read_anew(
    before: dict[NodeId, bytes], changes: dict[NodeId, bytes | None]
) -> None:
    kept = Outlines.of(outline(*entry) for entry in before.items())
    changed = kept.changed(
        {section: None if value is None else outline(section, value) for section, value in changes.items()}
    )
    after = {section: value for section, value in (before | changes).items() if value is not None}
    anew = Outlines.of(outline(*entry) for entry in after.items())
    assert changed.by_id == anew.by_id
    assert changed.ids == anew.ids == tuple(sorted(after))
    assert np.array_equal(changed.rows, anew.rows) or not after
    assert kept.ids == tuple(sorted(before)), "the kept outlines are never changed"

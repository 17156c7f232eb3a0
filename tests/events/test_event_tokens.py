"""Events: the kind of event for each change of a fact, and the tokens that say how far a watcher has read."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import events_pb2 as pb
from drillcore_server.events.model import Cursor, EventKind, Stage, kind_of, read_cursor
from drillcore_server.facts.model import FactChange, FactStatus
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.pages import make_token
from drillcore_server.storage.ids import TenantId

OWN, OTHER = TenantId(UUID(int=1)), TenantId(UUID(int=2))
CURSORS = st.builds(
    Cursor,
    st.integers(0, 2**32 - 1),
    st.binary(min_size=10, max_size=10),
    st.sampled_from(Stage),
    st.binary(min_size=16, max_size=16),
)


def test_kinds_are_numbered_as_in_the_protocol() -> None:
    known = {name.removeprefix("EVENT_KIND_"): number for name, number in pb.EventKind.items() if number}
    assert {kind.name: kind.value for kind in EventKind} == known


@pytest.mark.parametrize(
    ("change", "status", "kind"),
    [
        (FactChange.ADDED, FactStatus.ACTIVE, EventKind.FACT_ADDED),
        (FactChange.CONTENT | FactChange.DETAILS, FactStatus.ACTIVE, EventKind.FACT_CHANGED),
        (FactChange.STATUS, FactStatus.STALE, EventKind.FACT_CHANGED),
        (FactChange.STATUS, FactStatus.QUARANTINED, EventKind.FACT_QUARANTINED),
        (FactChange.DETAILS, FactStatus.QUARANTINED, EventKind.FACT_CHANGED),
        (FactChange.STATUS, FactStatus.ACTIVE, EventKind.FACT_CHANGED),
        (FactChange.ARCHIVED, FactStatus.ACTIVE, EventKind.FACT_CHANGED),
        (FactChange.RESTORED, FactStatus.STALE, EventKind.FACT_CHANGED),
        (FactChange.ERASED, FactStatus.DELETED, EventKind.FACT_ERASED),
        (FactChange.VECTOR, FactStatus.ACTIVE, None),
        (FactChange.VECTOR | FactChange.STATUS, FactStatus.STALE, EventKind.FACT_CHANGED),
    ],
    ids=str,
)
def test_each_change_has_its_kind_of_event(change: FactChange, status: FactStatus, kind: EventKind | None) -> None:
    assert kind_of(change, status) is kind


@given(CURSORS)
def test_a_token_decodes_to_its_cursor(cursor: Cursor) -> None:
    assert read_cursor(OWN, cursor.token(OWN)) == cursor


@given(CURSORS)
def test_a_token_of_another_tenant_is_refused(cursor: Cursor) -> None:
    with pytest.raises(BadInput) as refused:
        read_cursor(OWN, cursor.token(OTHER))
    assert (refused.value.reason, refused.value.details) == (Reason.INVALID_PAGE_TOKEN, {"field": "resume_token"})


@pytest.mark.parametrize("cursor", [b"", b"x", bytes(30), bytes(14) + b"\4" + bytes(16), bytes(32)], ids=len)
def test_a_sealed_token_without_a_valid_cursor_is_refused(cursor: bytes) -> None:
    with pytest.raises(BadInput, match="INVALID_PAGE_TOKEN"):
        read_cursor(OWN, make_token(f"events in {OWN}", cursor))

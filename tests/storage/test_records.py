"""Records are read as they were stored, older records can still be read, and everything else is damage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.storage.ids import PrincipalId, TenantId
from drillcore_server.storage.records import RecordKind
from tests.support.stores.stores import opened


@dataclass(frozen=True, slots=True)
class Visit:
    """A field of every type that the store's records have."""

    id: TenantId
    name: str
    metadata: Mapping[str, str]
    created_at: datetime
    created_by: PrincipalId
    version: int
    deleted_at: datetime | None = None


VISIT = RecordKind(Visit)
TIMES = st.datetimes(timezones=st.just(UTC))
TEXTS = st.text(st.characters(codec="utf-8"))
VISITS = st.builds(
    Visit,
    id=st.uuids(),
    name=TEXTS,
    metadata=st.dictionaries(TEXTS, TEXTS),
    created_at=TIMES,
    created_by=TEXTS,
    version=st.integers(0, 2**63),
    deleted_at=st.none() | TIMES,
)
A_VISIT = Visit(
    id=TenantId(UUID(int=1)),
    name="screening",
    metadata={"site": "12"},
    created_at=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    created_by=PrincipalId("operator"),
    version=3,
)
STORED: list[Any] = msgspec.msgpack.decode(VISIT.encode(A_VISIT))
NAMES = [field.name for field in fields(Visit)]


def stored(**changed: Any) -> bytes:
    """The stored bytes of a record with the given fields changed."""
    return msgspec.msgpack.encode([changed.get(name, value) for name, value in zip(NAMES, STORED, strict=True)])


@given(VISITS)
def test_a_record_is_read_as_it_was_stored(visit: Visit) -> None:
    assert VISIT.decode(VISIT.encode(visit)) == visit


def test_the_stored_form_never_changes() -> None:
    """Fields are stored in their order, so that equal records have equal bytes."""
    assert [
        UUID(int=1).bytes,
        "screening",
        {"site": "12"},
        datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "operator",
        3,
        None,
    ] == STORED


def test_a_time_before_1970_is_kept() -> None:
    early = replace(A_VISIT, created_at=datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=UTC))
    assert VISIT.decode(VISIT.encode(early)) == early


def test_a_field_that_an_older_record_lacks_takes_its_default() -> None:
    assert VISIT.decode(msgspec.msgpack.encode(STORED[:-1])) == A_VISIT


@pytest.mark.parametrize("count", range(len(STORED) - 1))
def test_a_record_without_a_field_it_must_have_is_damage(count: int) -> None:
    with pytest.raises(StoreCorruptError, match="visit"):
        VISIT.decode(msgspec.msgpack.encode(STORED[:count]))


def test_an_unknown_field_is_damage() -> None:
    with pytest.raises(StoreCorruptError, match="visit"):
        VISIT.decode(msgspec.msgpack.encode([*STORED, 1]))


@pytest.mark.parametrize("damaged", [b"", b"\xc1", VISIT.encode(A_VISIT)[:-3], VISIT.encode(A_VISIT) + b"\0"])
def test_bytes_that_are_no_record_are_damage(damaged: bytes) -> None:
    with pytest.raises(StoreCorruptError, match="visit"):
        VISIT.decode(damaged)


WRONG: list[tuple[str, Any]] = [
    ("id", None),
    ("id", 5),
    ("id", b"fifteen bytes.."),
    ("id", "sixteen letters."),
    ("name", None),
    ("name", 5),
    ("name", b"screening"),
    ("version", "3"),
    ("version", 3.0),
    ("version", True),
    ("version", None),
    ("metadata", None),
    ("metadata", ["site"]),
    ("metadata", {"site": 12}),
    ("created_at", None),
    ("created_at", "2026-01-02"),
    ("created_at", 1.5),
    ("created_at", True),
    ("created_at", 2**62),
    ("deleted_at", "2026-01-02"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_field_of_the_wrong_type_is_damage(name: str, value: Any) -> None:
    with pytest.raises(StoreCorruptError, match="visit"):
        VISIT.decode(stored(**{name: value}))


def test_a_type_that_cannot_be_stored_is_found_when_the_program_starts() -> None:
    @dataclass(frozen=True)
    class Strange:
        numbers: complex

    with pytest.raises(TypeError, match="complex"):
        RecordKind(Strange)


def test_a_large_record_is_split_and_read_back(tmp_path: Path) -> None:
    large = replace(A_VISIT, name="ü" * 100_000)
    with opened(tmp_path) as engine:
        engine.run(lambda tr: VISIT.write(tr, b"key", large))
        assert engine.run(lambda tr: VISIT.read(tr, b"key")) == large
        assert engine.run(lambda tr: VISIT.read(tr, b"another")) is None

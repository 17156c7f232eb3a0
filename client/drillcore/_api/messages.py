"""Converts what many messages of the protocol have: ids, times, revisions, enums.

Converters are named alike in all modules here: `to_x` makes a result from a message, `x_message` makes a message.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from drillcore._transport.call import Id
from drillcore_proto.v1 import nodes_pb2

E = TypeVar("E", bound=enum.Enum)
V = TypeVar("V")

AsOf = int | datetime
"""A revision of a corpus, or a time with a zone."""


class ProtoEnum(Protocol[V]):
    """An enum of the protocol. Its values have a prefix, and 0 is PREFIX_UNSPECIFIED."""

    @property
    def DESCRIPTOR(self) -> EnumDescriptor: ...  # noqa: N802 - protobuf's name

    def Name(self, number: V) -> str: ...  # noqa: N802 - protobuf's name

    def Value(self, name: str) -> V: ...  # noqa: N802 - protobuf's name


def enum_member(kind: type[E], proto: ProtoEnum[V], number: V) -> E:
    """The member that a number of the protocol stands for."""
    return kind[proto.Name(number).removeprefix(_prefix(proto))]


def enum_number(proto: ProtoEnum[V], member: enum.Enum) -> V:
    """The number that stands for a member in the protocol."""
    return proto.Value(_prefix(proto) + member.name)


def _prefix(proto: ProtoEnum[Any]) -> str:
    return proto.DESCRIPTOR.values[0].name.removesuffix("UNSPECIFIED")


def to_datetime(message: Timestamp) -> datetime:
    return message.ToDatetime(tzinfo=UTC)


def optional_datetime(message: Message, field: str) -> datetime | None:
    """The time in a field of a message, None if it is not set."""
    return to_datetime(getattr(message, field)) if message.HasField(field) else None


def to_id(text: str) -> UUID | None:
    """The id, None if the text is empty."""
    return UUID(text) if text else None


def to_revisions(message: Mapping[str, int]) -> dict[UUID, int]:
    """The revision of each corpus."""
    return {UUID(corpus): revision for corpus, revision in message.items()}


def as_of_message(moment: AsOf | None) -> nodes_pb2.AsOf | None:
    """Raises ValueError for a time without a zone, or a negative revision."""
    if moment is None:
        return None
    if isinstance(moment, datetime):
        return nodes_pb2.AsOf(time=timestamp(moment))
    return nodes_pb2.AsOf(revision=moment)


def timestamp(time: datetime | None) -> Timestamp | None:
    """Raises ValueError for a time without a zone: it would mean another moment on another machine."""
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError(f"the time {time} has no zone: give it one, as in datetime.now(UTC)")
    message = Timestamp()
    message.FromDatetime(time)
    return message


def one_key(key: Id | None, name: str | None) -> dict[str, str]:
    """The field that names a resource, by id or by name. Raises TypeError unless exactly one is given."""
    if key is not None and name is None:
        return {"id": str(key)}
    if name is not None and key is None:
        return {"name": name}
    raise TypeError("give either an id or name=")


def given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value. A message takes no None for fields that exclude each other."""
    return {name: value for name, value in fields.items() if value is not None}

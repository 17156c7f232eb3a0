"""Names of enumerations are hashed, signed and recorded, so they are the names and numbers of the protocol.

The protocol's names never change, so renaming a Python member cannot change what is stored without a word.
"""

from __future__ import annotations

import enum
import re

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from drillcore_proto.v1 import envelopes_pb2, events_pb2, facts_pb2, graphs_pb2
from drillcore_server.envelopes.model import QualityTier
from drillcore_server.events.model import EventKind
from drillcore_server.facts.model import FactStatus
from drillcore_server.graphs.turn_model import Phase, TurnRole

STORED: list[tuple[type[enum.IntEnum], EnumTypeWrapper]] = [
    (FactStatus, facts_pb2.FactStatus),
    (EventKind, events_pb2.EventKind),
    (QualityTier, envelopes_pb2.QualityTier),
    (Phase, graphs_pb2.Phase),
    (TurnRole, graphs_pb2.TurnRole),
]


@pytest.mark.parametrize(("stored", "protocol"), STORED, ids=[stored.__name__ for stored, _ in STORED])
def test_an_enumeration_whose_names_are_stored_is_that_of_the_protocol(
    stored: type[enum.IntEnum], protocol: EnumTypeWrapper
) -> None:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", stored.__name__).upper()
    numbers = {name.removeprefix(f"{prefix}_"): number for name, number in protocol.items() if number}
    assert {member.name: member.value for member in stored} == numbers

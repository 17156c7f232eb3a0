"""ArchiveFacts."""

from __future__ import annotations

from collections.abc import Sequence

from drillcore_proto.reasons import Reason
from drillcore_server.commands.archiving import Move, Moved, move_facts
from drillcore_server.commands.fact_changing import FactDesk
from drillcore_server.commands.unit import Call
from drillcore_server.domain.errors import NotReady
from drillcore_server.domain.facts import FOUND, Fact, FactChange
from drillcore_server.domain.ids import FactId, TenantId


def archive_facts(desk: FactDesk, call: Call, *, tenant: TenantId | None, facts: Sequence[FactId]) -> Moved:
    """Takes facts out of the search index, whoever has read them and when. They stay readable by their ids."""

    def archived(fact: Fact) -> Fact | None:
        if fact.status not in FOUND:
            message = f"the fact {fact.id} is {fact.status.name}: it is in no search index to be taken out of"
            raise NotReady(Reason.ILLEGAL_TRANSITION, message)
        return fact.archived(call.at) if fact.archived_at is None else None

    return move_facts(desk, call, tenant, facts, Move(archived, FactChange.ARCHIVED))

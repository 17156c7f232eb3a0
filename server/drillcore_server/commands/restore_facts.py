"""RestoreFacts."""

from __future__ import annotations

from collections.abc import Sequence

from drillcore_server.commands.archiving import Move, Moved, move_facts
from drillcore_server.commands.fact_changing import FactDesk
from drillcore_server.commands.unit import Call
from drillcore_server.domain.facts import Fact, FactChange
from drillcore_server.domain.ids import FactId, TenantId


def restore_facts(desk: FactDesk, call: Call, *, tenant: TenantId | None, facts: Sequence[FactId]) -> Moved:
    """Brings archived facts back. It counts as an access of each, or the next archiving would take them again."""

    def restored(fact: Fact) -> Fact | None:
        return None if fact.archived_at is None else fact.restored(call.at)

    return move_facts(desk, call, tenant, facts, Move(restored, FactChange.RESTORED, counts_as_access=True))

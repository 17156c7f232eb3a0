"""GetState."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_library import FactLibrary, check_count
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, Revision, TenantId
from drillcore_server.domain.state_hash import combined_hash


@dataclass(frozen=True, slots=True)
class CorpusState:
    corpus: CorpusId
    revision: Revision
    """The state revision: anything that could change an envelope makes a new one, reading does not."""
    state_hash: str = ""
    facts: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class State:
    states: Sequence[CorpusState]
    combined_hash: str = ""


def get_state(
    library: FactLibrary, call: Call, *, tenant: TenantId | None, corpora: Sequence[CorpusId], revision_only: bool
) -> State:
    """The state of each corpus, and of all of them together."""
    check_count(corpora)
    wanted = sorted(set(corpora))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> State:
        shelves = library.shelves(tr, granted, trail, wanted, AsOf())
        states = [_state(library, granted, one, revision_only=revision_only) for one in shelves]
        if revision_only:
            return State(states)
        return State(states, combined_hash((one.corpus, one.revision, one.state_hash) for one in states))

    return library.library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _state(library: FactLibrary, granted: InTenant, shelf: Shelf, *, revision_only: bool) -> CorpusState:
    shared = shelf.corpus.tenant_id != granted.tenant
    if revision_only:
        return CorpusState(shelf.corpus.id, shelf.revision, shared=shared)
    state = library.states.at(shelf.corpus.number, shelf.view)
    return CorpusState(shelf.corpus.id, shelf.revision, state.state_hash, state.facts, shared)

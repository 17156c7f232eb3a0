"""GetFacts.

ListFacts.

GetState.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts import counters
from drillcore_server.facts.filters import Listing
from drillcore_server.facts.model import FACTS_MAX, Fact, FactFilters, FoundFact
from drillcore_server.facts.reader import FactReads, check_count, check_facts, corpus_of, missing_fact
from drillcore_server.facts.state_hash import combined_hash
from drillcore_server.facts.store import FactReader
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.fingerprint import fingerprint
from drillcore_server.kernel.pages import Page, PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes, erased
from drillcore_server.storage.ids import CorpusId, FactId, NodeId, Revision, TenantId


@dataclass(frozen=True, slots=True)
class Facts:
    facts: Sequence[FoundFact]
    revisions: Mapping[CorpusId, Revision]


def get_facts(
    reads: FactReads,
    call: Call,
    *,
    tenant: TenantId | None,
    wanted: Sequence[FactId],
    as_of: AsOf,
    with_embedding: bool = False,
) -> Facts:
    """The facts of these ids, in order, whatever their status. All must be there."""
    ids = check_facts(wanted, FACTS_MAX)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> Facts:
        trail.touch_node_ids(map(NodeId, ids))
        by_corpus: dict[CorpusId, list[FactId]] = {}
        for one in ids:
            by_corpus.setdefault(corpus_of(tr, reads.corpora, granted, one), []).append(one)
        if as_of.revision is not None and len(by_corpus) > 1:
            raise BadInput(Reason.INVALID_ARGUMENT, "a revision is of one corpus: name facts of one", field="as_of")
        found: dict[FactId, FoundFact] = {}
        revisions: dict[CorpusId, Revision] = {}
        for corpus, own in by_corpus.items():
            view = reads.at(tr, granted, trail, corpus, as_of)
            revisions[corpus] = view.revision
            facts = [FactReader(view).fact(one) for one in own]
            for one, fact in zip(own, facts, strict=True):
                if fact is None and view.was_erased(view.keys.fact(one)):
                    raise erased()
                if fact is None:
                    raise missing_fact(one)
            there = [fact for fact in facts if fact is not None]
            found |= {one.fact.id: one for one in reads.told(view, there, with_embedding=with_embedding)}
            trail.touch_facts(there, view.corpus.number)
            counters.note_later(notes, view.keys, own, call.at)
        _check_size(found.values(), reads.unit.page_bytes_max)
        return Facts([found[one] for one in ids], revisions)

    return reads.unit.read_with_notes(call, access.in_tenant(tenant, Permission.READ), work)


def _check_size(found: Iterable[FoundFact], size_bytes_max: int) -> None:
    if sum(one.size_bytes for one in found) > size_bytes_max:
        raise BadInput(Reason.TOO_LARGE, "these facts do not fit into one answer; ask for fewer", field="fact_ids")


def list_facts(
    reads: FactReads,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    filters: FactFilters,
    as_of: AsOf,
    size: int,
    token: str,
) -> tuple[Page[FoundFact], Revision]:
    """Facts that the filters allow, by id, and their revision, which is that of later pages too.

    A page may have fewer facts than were asked for, or none, and others follow: see `LOOKED_AT_MAX`.
    """
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    asked = fingerprint("facts listed", filters).hex()
    listing = f"facts of {corpus} {asked}"
    cursor = read_token(listing, token)
    after: FactId | None = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), FactId(UUID(bytes=cursor[6:]))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> tuple[Page[FoundFact], Revision]:
        view = reads.at(tr, granted, trail, corpus, as_of)
        looked = Listing(reads, view, filters, after)
        items, more = fill_page(_sized(view, looked.facts()), limit)
        trail.touch_facts(items, view.corpus.number)
        last = items[-1].id if more else looked.after if looked.is_cut else None
        token = "" if last is None else make_token(listing, view.revision.to_bytes(6, "big") + last.bytes)
        return Page(reads.told(view, items), token), view.revision

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _sized(view: CorpusAtRevision, facts: Iterator[Fact]) -> Iterator[tuple[Fact, int]]:
    return ((one, FoundFact(one, view.corpus.id).size_bytes) for one in facts)


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
    reads: FactReads, call: Call, *, tenant: TenantId | None, corpora: Sequence[CorpusId], revision_only: bool
) -> State:
    """The state of each corpus, and of all of them together."""
    check_count(corpora)
    wanted = sorted(set(corpora))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> State:
        views = reads.at_each(tr, granted, trail, wanted, AsOf())
        states = [_state(reads, granted, one, revision_only=revision_only) for one in views]
        if revision_only:
            return State(states)
        return State(states, combined_hash((one.corpus, one.revision, one.state_hash) for one in states))

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _state(reads: FactReads, granted: InTenant, view: CorpusAtRevision, *, revision_only: bool) -> CorpusState:
    shared = view.corpus.tenant_id != granted.tenant
    if revision_only:
        return CorpusState(view.corpus.id, view.revision, shared=shared)
    state = reads.states.at(view)
    return CorpusState(view.corpus.id, view.revision, state.state_hash, state.facts, shared)

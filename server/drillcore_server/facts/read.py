"""GetFacts, ListFacts and GetState."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts.fact_reads import (
    FactReads,
    check_corpora,
    check_facts,
    corpora_of,
    expected_locators,
    missing_fact,
)
from drillcore_server.facts.filters import FactListing, FactPlace
from drillcore_server.facts.model import FACTS_MAX, Fact, FactFilters, FoundFact
from drillcore_server.facts.state_hash import combined_hash
from drillcore_server.facts.store import FactReader, note_accesses_later
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.canonical_json import fingerprint
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.pages import Page, PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes, erased
from drillcore_server.storage.ids import CorpusId, FactId, NodeId, Revision, TenantId


@dataclass(frozen=True, slots=True)
class Facts:
    facts: Sequence[FoundFact]
    revisions: Mapping[CorpusId, Revision]
    """The revision at which each corpus was read."""


def get_facts(
    reads: FactReads,
    call: Call,
    *,
    tenant: TenantId | None,
    wanted: Sequence[FactId],
    as_of: AsOf,
    with_embedding: bool = False,
) -> Facts:
    """The facts with these ids, in order, whatever their status. Counts an access of each.

    Raises `Missing` if one does not exist or was erased, and `BadInput` if they do not fit into one answer.
    """
    ids = check_facts(wanted, FACTS_MAX)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> Facts:
        trail.touch_node_ids(map(NodeId, ids))
        by_corpus: dict[CorpusId, list[FactId]] = {}
        for id_, corpus in corpora_of(tr, reads.corpora, granted, ids).items():
            by_corpus.setdefault(corpus, []).append(id_)
        if as_of.revision is not None and len(by_corpus) > 1:
            message = "as_of names a revision, which belongs to one corpus; name facts of one corpus"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="as_of")
        found: dict[FactId, FoundFact] = {}
        revisions: dict[CorpusId, Revision] = {}
        for corpus, own in by_corpus.items():
            view = reads.at(tr, granted, trail, corpus, as_of)
            revisions[corpus] = view.revision
            view.read_ahead([view.keys.embeddings(), *FactReader(view).keys_of(own)])
            facts = FactReader(view).facts_unless_erased(own)
            for id_, fact in zip(own, facts, strict=True):
                if fact is None and FactReader(view).was_erased(id_):
                    raise erased()
                if fact is None:
                    raise missing_fact(id_)
            there = [fact for fact in facts if fact is not None]
            found |= {fact.id: fact for fact in reads.found_facts(view, there, with_embedding=with_embedding)}
            trail.touch_facts(there, view.corpus.number)
            note_accesses_later(notes, view.keys, own, call.at)
        _check_size(found.values(), reads.unit.page_bytes_max)
        return Facts([found[id_] for id_ in ids], revisions)

    expected = expected_locators(reads.unit, call, tenant, ids)
    return reads.unit.read_with_notes(call, access.in_tenant(tenant, Permission.READ), work, expected=expected)


def _check_size(found: Iterable[FoundFact], size_bytes_max: int) -> None:
    if sum(fact.size_bytes for fact in found) > size_bytes_max:
        message = "these facts do not fit into one answer; name fewer in fact_ids"
        raise BadInput(Reason.TOO_LARGE, message, field="fact_ids")


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
    """A page of the facts that the filters allow, in the order of ids, and the revision of this and all later pages.

    A page may be short or empty although more pages follow: see `LOOKED_AT_MAX`.
    """
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    asked = fingerprint("facts listed", filters).hex()
    listing = f"facts of {corpus} {asked}"
    cursor = read_token(listing, token)
    behind: FactPlace | None = None
    if cursor is not None:
        as_of, behind = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), FactPlace.decoded(cursor[6:])

    def work(tr: Reader, granted: InTenant, trail: Trail) -> tuple[Page[FoundFact], Revision]:
        view = reads.at(tr, granted, trail, corpus, as_of)
        listed = FactListing(reads, view, filters, behind)
        items, more = fill_page(_sized(view, listed.facts()), limit)
        trail.touch_facts(items, view.corpus.number)
        last = FactPlace(items[-1].id) if more else listed.behind if listed.is_cut else None
        token = "" if last is None else make_token(listing, view.revision.to_bytes(6, "big") + last.encoded())
        return Page(reads.found_facts(view, items), token), view.revision

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _sized(view: CorpusAtRevision, facts: Iterator[Fact]) -> Iterator[tuple[Fact, int]]:
    return ((fact, FoundFact(fact, view.corpus.id).size_bytes) for fact in facts)


@dataclass(frozen=True, slots=True)
class CorpusState:
    corpus: CorpusId
    revision: Revision
    """The state revision. Whatever could change an envelope makes a new one; reading does not."""
    state_hash: str = ""
    facts: int = 0
    shared: bool = False
    """Whether the corpus belongs to another tenant, which shares it."""


@dataclass(frozen=True, slots=True)
class State:
    states: Sequence[CorpusState]
    combined_hash: str = ""


def get_state(
    reads: FactReads, call: Call, *, tenant: TenantId | None, corpora: Sequence[CorpusId], revision_only: bool
) -> State:
    """The state of each corpus, and a hash of all of them together. With `revision_only`, no hashes.

    Without `corpora`, the state of all corpora that the caller may read.
    """
    check_corpora(corpora)
    wanted = sorted(set(corpora))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> State:
        views = reads.at_each(tr, granted, trail, wanted, AsOf())
        states = [_state(reads, granted, view, revision_only=revision_only) for view in views]
        if revision_only:
            return State(states)
        return State(states, combined_hash((state.corpus, state.revision, state.state_hash) for state in states))

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _state(reads: FactReads, granted: InTenant, view: CorpusAtRevision, *, revision_only: bool) -> CorpusState:
    shared = view.corpus.tenant_id != granted.tenant
    if revision_only:
        return CorpusState(view.corpus.id, view.revision, shared=shared)
    state = reads.states.at(view)
    return CorpusState(view.corpus.id, view.revision, state.state_hash, state.facts, shared)

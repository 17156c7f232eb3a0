"""GetFacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_library import FactLibrary, check_facts, corpus_of, missing_fact
from drillcore_server.commands.unit import Call, erased
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.facts import FACTS_MAX
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.found_facts import FoundFact
from drillcore_server.domain.ids import CorpusId, FactId, NodeId, Revision, TenantId
from drillcore_server.store.facts import FactsView


@dataclass(frozen=True, slots=True)
class Facts:
    facts: Sequence[FoundFact]
    revisions: Mapping[CorpusId, Revision]


def get_facts(
    library: FactLibrary,
    call: Call,
    *,
    tenant: TenantId | None,
    wanted: Sequence[FactId],
    as_of: AsOf,
    with_embedding: bool = False,
) -> Facts:
    """The facts of these ids, in order, whatever their status. All must be there."""
    ids = check_facts(wanted, FACTS_MAX)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Facts:
        trail.touch_node_ids(map(NodeId, ids))
        by_corpus: dict[CorpusId, list[FactId]] = {}
        for one in ids:
            by_corpus.setdefault(corpus_of(tr, library.library, granted, one), []).append(one)
        if as_of.revision is not None and len(by_corpus) > 1:
            raise BadInput(Reason.INVALID_ARGUMENT, "a revision is of one corpus: name facts of one", field="as_of")
        found: dict[FactId, FoundFact] = {}
        revisions: dict[CorpusId, Revision] = {}
        for corpus, own in by_corpus.items():
            shelf = library.shelf(tr, granted, trail, corpus, as_of)
            revisions[corpus] = shelf.revision
            facts = [FactsView(shelf.view).fact(one) for one in own]
            for one, fact in zip(own, facts, strict=True):
                if fact is None and shelf.view.was_erased(shelf.view.keys.fact(one)):
                    raise erased()
                if fact is None:
                    raise missing_fact(one)
            there = [fact for fact in facts if fact is not None]
            found |= {one.fact.id: one for one in library.told(shelf, there, with_embedding=with_embedding)}
            trail.touch_facts(there, shelf.corpus.number, accessed=True)
        _check_size(found.values(), library.library.unit.page_bytes_max)
        return Facts([found[one] for one in ids], revisions)

    return library.library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _check_size(found: Iterable[FoundFact], size_bytes_max: int) -> None:
    if sum(one.size_bytes for one in found) > size_bytes_max:
        raise BadInput(Reason.TOO_LARGE, "these facts do not fit into one answer; ask for fewer", field="fact_ids")

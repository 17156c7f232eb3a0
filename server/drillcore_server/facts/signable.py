"""A fact as JSON: the object in signed copies of a corpus, and the content that an electronic signature covers."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.facts import store as facts
from drillcore_server.facts.fact_reads import corpus_of, missing_fact
from drillcore_server.facts.model import Fact
from drillcore_server.facts.store import FactReader
from drillcore_server.hierarchy.signable import Content, json_number, span_content
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant, Principal, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.signatures.model import Target, TargetKind
from drillcore_server.signatures.targets import FoundTarget
from drillcore_server.storage.ids import CorpusId, FactId, Level, NodeId, TenantId
from drillcore_server.storage.sealed import keys_of


def fact_content(fact: Fact, corpus: CorpusId) -> Content:
    """The JSON object of a fact. It leaves out the vector, which another model may replace without a new version."""
    return {
        "id": str(fact.id),
        "corpus_id": str(corpus),
        "content": fact.content,
        "content_hash": fact.content_hash,
        "tokens": fact.tokens,
        "source_id": fact.source,
        "source_location": fact.source_location,
        "importance_weight": json_number(fact.importance),
        "ingested_at": time_text(fact.ingested_at),
        "modified_at": time_text(fact.modified_at),
        "created_by": fact.created_by,
        "ttl": fact.ttl,
        "status": fact.status.name,
        "status_reason": fact.status_reason,
        "archived_at": None if fact.archived_at is None else time_text(fact.archived_at),
        "metadata": dict(fact.metadata),
        "chunk_id": None if fact.chunk is None else str(fact.chunk),
        "document_id": None if fact.document is None else str(fact.document),
        "span": None if fact.span is None else span_content(fact.span),
        "version": fact.version,
    }


@dataclass(frozen=True, slots=True)
class SignableFacts:
    """Facts as targets of signatures. See `signatures/targets.py`."""

    reads: CorpusReads

    def rule(self, _principal: Principal, tenant: TenantId | None) -> Rule[InTenant]:
        return access.in_tenant(tenant, Permission.SIGN)

    def find(self, tr: Reader, granted: InTenant, trail: Trail, target: UUID) -> FoundTarget:
        wanted = FactId(target)
        trail.touch_node_ids([NodeId(target)])
        corpus = corpus_of(tr, self.reads, granted, wanted)
        view = self.reads.at(tr, granted, trail, corpus, AsOf())
        granted.check_level(corpus, Level.CHUNK)
        found = FactReader(view).stored(wanted)
        if found is None:
            raise missing_fact(wanted)
        stored, fact = found
        trail.touch_facts([fact], view.corpus.number)
        signed = Target(TargetKind.FACT, target, fact.version)
        return FoundTarget(signed, fact_content(fact, corpus), keys_of(stored.value), corpus)

    def corpus_of(self, tr: Reader, granted: InTenant, target: UUID) -> Corpus | None:
        number = facts.locate(tr, self.reads.unit.keys, granted.tenant, FactId(target))
        return None if number is None else self.reads.numbered(tr, granted, granted.tenant, number)

"""CreateCorpus."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.named import checked_description, checked_metadata, checked_name
from drillcore_server.domain.regions import checked_region
from drillcore_server.store import corpora
from drillcore_server.store.corpora import CORPORA, CORPUS


def create_corpus(
    unit: Unit,
    call: Call,
    *,
    tenant: TenantId | None,
    name: str,
    description: str,
    metadata: Mapping[str, str],
    corpus_id: CorpusId | None,
    region: str = "",
) -> Corpus:
    """A new corpus; in the region that the call is bound to, unless another is given."""
    new_id = corpus_id or CorpusId(uuid4())
    new_name, new_metadata = checked_name(name), checked_metadata(metadata)
    new_description = checked_description(description)
    new_region = checked_region(region) if region else call.region
    numbers = corpora.new_numbers()

    def work(tr: Transaction, granted: InTenant, trail: Trail) -> Corpus:
        granted.check_everything()
        granted.residency.check(new_region)
        corpus = Corpus(
            id=new_id,
            tenant_id=granted.tenant,
            name=new_name,
            description=new_description,
            metadata=new_metadata,
            created_at=call.at,
            created_by=call.principal.id,
            updated_at=call.at,
            version=1,
            number=corpora.take_number(tr, unit.keys, numbers, new_id),
            region=new_region,
        )
        CORPORA.insert(tr, unit.keys, corpus)
        trail.touch_corpus(new_id)
        trail.change(None, corpus)
        return corpus

    return unit.write(call, access.in_tenant(tenant, Permission.MANAGE_CORPORA), CORPUS, work)

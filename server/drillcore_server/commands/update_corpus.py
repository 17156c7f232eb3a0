"""UpdateCorpus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import NotReady
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.named import changed_metadata, check_version, checked_description, checked_name
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.regions import checked_region
from drillcore_server.domain.retention import HoldChange, RetentionChange
from drillcore_server.domain.sharing import SharingChange
from drillcore_server.store import sharing as shared_corpora
from drillcore_server.store import tenants
from drillcore_server.store.corpora import CORPORA, CORPUS
from drillcore_server.store.keyspace import Keyspace


def update_corpus(
    unit: Unit,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus_id: CorpusId,
    name: str | None,
    description: str | None,
    set_metadata: Mapping[str, str],
    remove_metadata: Iterable[str],
    retention: RetentionChange | None = None,
    hold: HoldChange | None = None,
    region: str = "",
    sharing: SharingChange | None = None,
    expected_version: int | None,
) -> Corpus:
    """Changes what is given and leaves the rest. Only an operator of the server shares a corpus, or stops to."""
    new_name = None if name is None else checked_name(name)
    new_description = None if description is None else checked_description(description)
    new_region = checked_region(region) if region else ""

    def work(tr: Transaction, granted: InTenant, trail: Trail) -> Corpus:
        trail.touch_corpus(corpus_id)
        old = granted.corpus(tr, unit.keys, corpus_id, entering=new_region)
        granted.check_level(corpus_id, *Level)
        check_version(old, expected_version)
        _check_region(old, new_region)
        if sharing is not None:
            _check_sharing(tr, unit.keys, call, sharing)
        new = replace(
            old,
            name=new_name or old.name,
            description=old.description if new_description is None else new_description,
            metadata=changed_metadata(old.metadata, set_metadata, remove_metadata),
            retention_days=old.retention_days if retention is None else retention.days,
            legal_hold=old.legal_hold if hold is None else hold.applied(old.legal_hold, call.principal.id, call.at),
            updated_at=call.at,
            version=old.version + 1,
            region=old.region or new_region,
            sharing=old.sharing if sharing is None else sharing.applied(old.tenant_id, call.principal.id, call.at),
        )
        CORPORA.replace(tr, unit.keys, old, new)
        shared_corpora.update(tr, unit.keys, old, new)
        trail.change(old, new)
        return new

    return unit.write(call, access.in_tenant(tenant, Permission.MANAGE_CORPORA), CORPUS, work)


def _check_region(corpus: Corpus, region: str) -> None:
    if region and corpus.region not in {"", region}:
        message = f"the corpus is in the region {corpus.region}, and stays there: make another for {region}"
        raise NotReady(Reason.REGION_FIXED, message, field="region")


def _check_sharing(tr: Transaction, keys: Keyspace, call: Call, sharing: SharingChange) -> None:
    access.operator(tr, keys, call.principal, call.at)
    for tenant in sharing.tenants:
        tenants.get(tr, keys, tenant)

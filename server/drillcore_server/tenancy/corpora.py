"""The commands of corpora: create, get, list, update, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import uuid4

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import access, corpus_store
from drillcore_server.kernel.access import InTenant, checked_region
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_model import (
    Corpus,
    HoldChange,
    RetentionChange,
    SeenCorpus,
    SharingChange,
    check_not_on_hold,
)
from drillcore_server.kernel.corpus_store import CORPORA, CORPUS, get_tenant
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.named import (
    changed_metadata,
    check_version,
    checked_description,
    checked_metadata,
    checked_name,
)
from drillcore_server.kernel.pages import Listed, Page, PageLimit, bounded_page, page_size, read_id_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import CorpusId, Level, TenantId
from drillcore_server.storage.keyspace import Keyspace


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
    """Makes a corpus, by default in the region that the call is bound to."""
    new_id = corpus_id or CorpusId(uuid4())
    new_name, new_metadata = checked_name(name), checked_metadata(metadata)
    new_description = checked_description(description)
    new_region = checked_region(region) if region else call.region
    numbers = corpus_store.new_numbers()

    def work(tr: Transaction, granted: InTenant, trail: Trail) -> Corpus:
        granted.check_everything()
        granted.residency.check(new_region)
        tr.snapshot.get_many(
            [unit.keys.corpus(granted.tenant, new_id), unit.keys.corpus_name(granted.tenant, new_name)]
        )
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
            number=corpus_store.take_number(tr, unit.keys, numbers, new_id),
            region=new_region,
        )
        CORPORA.insert(tr, unit.keys, corpus)
        trail.touch_corpus(new_id)
        trail.change(None, corpus)
        return corpus

    expected = [unit.keys.corpus_number(number) for number in numbers]
    return unit.write(call, access.in_tenant(tenant, Permission.MANAGE_CORPORA), CORPUS, work, expected=expected)


def delete_corpus(
    unit: Unit, call: Call, *, tenant: TenantId | None, corpus_id: CorpusId, expected_version: int | None
) -> Corpus:
    """Marks the corpus deleted and returns it. Its id is never used again."""

    def work(tr: Transaction, granted: InTenant, trail: Trail) -> Corpus:
        trail.touch_corpus(corpus_id)
        old = granted.corpus(tr, unit.keys, corpus_id)
        granted.check_level(corpus_id, *Level)
        check_version(old, expected_version)
        check_not_on_hold(old.legal_hold)
        new = replace(old, updated_at=call.at, version=old.version + 1, deleted_at=call.at)
        CORPORA.replace(tr, unit.keys, old, new)
        corpus_store.update(tr, unit.keys, old, new)
        trail.change(old, new)
        return new

    return unit.write(call, access.in_tenant(tenant, Permission.MANAGE_CORPORA), CORPUS, work)


def get_corpus(unit: Unit, call: Call, *, tenant: TenantId | None, key: CorpusId | str) -> SeenCorpus:
    """The corpus with this id or this name."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> SeenCorpus:
        wanted = granted.named(tr, unit.keys, checked_name(key)) if isinstance(key, str) else key
        if wanted is None:
            raise CORPORA.unnamed(str(key))
        trail.touch_corpus(wanted)
        found = granted.corpus(tr, unit.keys, wanted)
        return SeenCorpus(found, granted.is_shared(found))

    return unit.read(call, access.in_tenant(tenant, Permission.READ, Permission.MANAGE_CORPORA), work)


def list_corpora(unit: Unit, call: Call, *, tenant: TenantId | None, size: int, token: str) -> Page[SeenCorpus]:
    """The corpora that the caller may see, in the order of ids: the tenant's own, and those shared with it.

    A page may be short or empty although more follow.
    """
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Page[SeenCorpus]:
        listing = f"corpora of {granted.tenant}"
        after = read_id_token(listing, token)
        found = granted.corpora_looked_at(tr, unit.keys, None if after is None else CorpusId(after))
        page = bounded_page(listing, (_seen(granted, listed) for listed in found), limit)
        for corpus in page.items:
            trail.touch_corpus(corpus.id)
        return page

    return unit.read(call, access.in_tenant(tenant, Permission.READ, Permission.MANAGE_CORPORA), work)


def _seen(granted: InTenant, found: Listed[Corpus]) -> Listed[SeenCorpus]:
    corpus = found.record
    seen = None if corpus is None else SeenCorpus(corpus, granted.is_shared(corpus))
    return Listed(found.id, seen, found.size_bytes)


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
    """Changes the given fields. Only an operator of the server may change whom a corpus is shared with."""
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
        corpus_store.update(tr, unit.keys, old, new)
        trail.change(old, new)
        return new

    return unit.write(call, access.in_tenant(tenant, Permission.MANAGE_CORPORA), CORPUS, work)


def _check_region(corpus: Corpus, region: str) -> None:
    if region and corpus.region not in {"", region}:
        message = f"the corpus is in the region {corpus.region}, and stays there: make another for {region}"
        raise NotReady(Reason.REGION_FIXED, message, field="region")


def _check_sharing(tr: Transaction, keys: Keyspace, call: Call, sharing: SharingChange) -> None:
    access.operator(tr, keys, call.principal, call.at)
    tr.get_many([keys.tenant(tenant) for tenant in sharing.tenants])
    for tenant in sharing.tenants:
        get_tenant(tr, keys, tenant)

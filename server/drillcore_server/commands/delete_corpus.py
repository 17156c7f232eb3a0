"""DeleteCorpus."""

from __future__ import annotations

from dataclasses import replace

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import CorpusId, TenantId
from drillcore_server.domain.named import check_version
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.retention import check_not_on_hold
from drillcore_server.store import sharing
from drillcore_server.store.corpora import CORPORA, CORPUS


def delete_corpus(
    unit: Unit, call: Call, *, tenant: TenantId | None, corpus_id: CorpusId, expected_version: int | None
) -> Corpus:
    """The corpus as it was left: marked deleted, so that its id is never used again."""

    def work(tr: Transaction, granted: InTenant, trail: Trail) -> Corpus:
        trail.touch_corpus(corpus_id)
        old = granted.corpus(tr, unit.keys, corpus_id)
        granted.check_level(corpus_id, *Level)
        check_version(old, expected_version)
        check_not_on_hold(old.legal_hold)
        new = replace(old, updated_at=call.at, version=old.version + 1, deleted_at=call.at)
        CORPORA.replace(tr, unit.keys, old, new)
        sharing.update(tr, unit.keys, old, new)
        trail.change(old, new)
        return new

    return unit.write(call, access.in_tenant(tenant, Permission.MANAGE_CORPORA), CORPUS, work)

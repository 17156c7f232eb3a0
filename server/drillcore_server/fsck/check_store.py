"""Checks that a store agrees with itself and with its audit log. Changes nothing; describes each problem in words.

Each corpus is read at its head and, if revisions were trimmed, at the oldest revision that is kept. Revisions between
them see the same records as one of these two, or records that trimming does not touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import EngineError
from drillcore_formats.audit.findings import VerificationFailed
from drillcore_formats.audit.keys import KeyChain, TrustedKeys, trust
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.check_log import RECORDS_MAX, LogChecker
from drillcore_server.audit.search import LogSearch, Terms
from drillcore_server.communities.checks import CommunityCheck
from drillcore_server.cores.checks import ForeignCheck
from drillcore_server.envelopes.checks import EnvelopeCheck
from drillcore_server.erasure.checks import ErasureCheck
from drillcore_server.erasure.index_check import SourceIndexCheck
from drillcore_server.facts.checks import FactCheck, SavedIndexes, fact_vector_problems
from drillcore_server.fsck.commitments import CommitmentCheck
from drillcore_server.graphs.checks import GraphCheck, QuadCheck
from drillcore_server.hierarchy.checks import HierarchyCheck
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus, Tenant
from drillcore_server.kernel.corpus_store import CORPORA, TENANTS
from drillcore_server.storage import audit_keys
from drillcore_server.storage.audit_records import RecordOpener
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.tenancy.checks import RetentionCheck, sharing_problems

_PAGE_S: Final = 2.0
"""Time for one page of an audit log: well within the five seconds of a transaction."""


@dataclass(frozen=True, slots=True)
class Report:
    corpora: int
    nodes: int
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Facts that are not problems, but that an operator should know."""


class Fsck:
    """Checks a whole store. `run` may be called again."""

    def __init__(
        self, engine: Engine, keys: Keyspace, keyring: Keyring, store: UUID, saved: SavedIndexes | None = None
    ) -> None:
        """`saved` has the saved indexes to check. None: they are not checked."""
        self._engine = engine
        self._saved = saved
        self._keys = keys
        self._keyring = keyring
        self._sealed = SealedRecords(keyring)
        self._opener = RecordOpener(store, self._sealed)
        self._store = store
        self._envelopes = EnvelopeCheck(engine, keys, self._sealed)
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._corpora = self._nodes = 0

    def run(self) -> Report:
        self._problems, self._notes, self._corpora, self._nodes = [], [], 0, 0
        try:
            trusted = self._trusted()
        except VerificationFailed as error:
            return Report(0, 0, (f"the chain of audit keys: {error}",))
        shared: list[Corpus] = []
        for tenant, _ in self._engine.run(lambda tr: list(TENANTS.scan(tr, self._keys.tenants()))):
            for corpus in self._check_tenant(tenant):
                self._check_corpus(corpus, trusted)
                shared += [corpus] if corpus.sharing is not None else []
        self._problems += sharing_problems(self._engine, self._keys, shared)
        self._problems += self._log_problems(trusted)
        return Report(self._corpora, self._nodes, tuple(self._problems), tuple(self._notes))

    def _check_tenant(self, tenant: Tenant) -> list[Corpus]:
        """Checks the tenant's name and envelopes, and returns its corpora."""
        if self._engine.run(lambda tr: tr.get(self._keys.tenant_name(tenant.name))) != tenant.id.bytes:
            self._problems.append(f"tenant {tenant.id}: its name does not lead to it")
        self._problems += self._envelopes.of_tenant(tenant.id)
        found = self._engine.run(lambda tr: list(CORPORA.scan(tr, self._keys.corpora(tenant.id))))
        return [corpus for corpus, _ in found]

    def _check_corpus(self, corpus: Corpus, trusted: TrustedKeys) -> None:
        head = self._engine.run(lambda tr: revisions.head(tr, self._keys.of_corpus(corpus.number)))
        self._problems += self._at_revision(corpus, head)
        self._problems += self._envelopes.of_corpus(corpus)
        committed = CommitmentCheck(self._engine, self._keys, self._opener, trusted, corpus)
        self._problems += committed.problems()
        erased = ErasureCheck(self._engine, self._keys, self._keyring, corpus)
        self._problems += erased.problems(committed.sealed_under)
        indexed = SourceIndexCheck(self._engine, self._keys.of_corpus(corpus.number)).problems()
        self._problems += [f"corpus {corpus.id}: {problem}" for problem in indexed]
        self._corpora += 1
        retention = RetentionCheck(self._engine, self._keys, corpus)
        self._problems += retention.problems()
        if not erased.is_erased_since(retention.state.floor):
            self._problems += self._at_floor(corpus, retention)
        self._notes += [*retention.notes(), *erased.notes(retention.state.floor)]
        self._check_saved(corpus, head)

    def _check_saved(self, corpus: Corpus, head: Revision) -> None:
        if self._saved is None:
            return
        saved = self._saved.check(self._snapshot(corpus, head), corpus.number, self._keyring)
        self._problems += [f"corpus {corpus.id}: {problem}" for problem in saved.problems()]
        self._notes += [f"corpus {corpus.id}: {note}" for note in saved.notes]

    def _at_floor(self, corpus: Corpus, retention: RetentionCheck) -> list[str]:
        """The problems of the oldest revision that is kept. Empty if that revision is trimmed during the check."""
        floor = retention.state.floor
        if floor in {0, retention.head}:
            return []
        nodes = self._nodes
        found = self._at_revision(corpus, floor)
        self._nodes = nodes
        return [] if retention.has_moved() else found

    def _at_revision(self, corpus: Corpus, revision: Revision) -> list[str]:
        return [f"corpus {corpus.id}, revision {revision}: {problem}" for problem in self._content(corpus, revision)]

    def _content(self, corpus: Corpus, revision: Revision) -> Iterator[str]:
        try:
            yield from self._content_problems(corpus, revision)
        except EngineError as error:  # of a record that everything else depends on
            yield error.message

    def _content_problems(self, corpus: Corpus, revision: Revision) -> Iterator[str]:
        name = self._engine.run(lambda tr: tr.get(self._keys.corpus_name(corpus.tenant_id, corpus.name)))
        if name != corpus.id.bytes:
            yield "its name does not lead to it"
        if revision == 0:
            return
        snapshot = self._snapshot(corpus, revision)
        hierarchy = HierarchyCheck(snapshot, self._keys, self._keyring, corpus)
        try:
            yield from hierarchy.problems()
        finally:
            self._nodes += hierarchy.nodes
        facts = FactCheck(snapshot, self._keys, self._keyring, corpus)
        yield from facts.problems(hierarchy.documents, hierarchy.chunks)
        yield from fact_vector_problems(snapshot)
        yield from CommunityCheck(snapshot, corpus.id).problems()
        yield from ForeignCheck(snapshot, self._keyring, corpus).problems()
        yield from GraphCheck(snapshot, self._keys, self._keyring, corpus).problems()
        yield from QuadCheck(snapshot, self._keyring, corpus).problems()

    def _snapshot(self, corpus: Corpus, revision: Revision) -> BatchedReads:
        return BatchedReads(self._engine, corpus, self._keys.of_corpus(corpus.number), self._sealed, revision)

    def _log_problems(self, trusted: TrustedKeys) -> Iterator[str]:
        """The problems of the audit logs: of every stored record and of the trees made of them."""
        search = LogSearch(self._keys, self._opener, Terms(self._keyring))
        checker = LogChecker(self._keys, self._opener, search, lambda _tr: trusted)
        for log, _ in self._engine.run(lambda tr: list(audit_log.heads(tr.snapshot, self._keys))):
            start = 0
            while True:
                done = self._engine.run(
                    lambda tr, log=log, start=start: checker.check(tr.snapshot, log, start, RECORDS_MAX, _PAGE_S)  # type: ignore[misc]
                )
                yield from (f"audit log {log}, record {found.index}: {found.problem}" for found in done.problems)
                if done.next_start >= done.size:
                    break
                start = done.next_start

    def _trusted(self) -> TrustedKeys:
        """The keys that sign the store's audit records. Raises `VerificationFailed` if one is not vouched for."""
        chain = KeyChain(self._store, tuple(self._engine.run(lambda tr: audit_keys.chain(tr, self._keys))))
        return trust(self._store, [chain.verifier(key) for key in chain.keys[:1]], chain)

"""Builds a server from its parts. Only this module creates them and connects them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any
from uuid import UUID

import structlog

from drillcore_fdb.engine import Engine
from drillcore_fdb.format import StoreHeader
from drillcore_formats.audit.leaves import SERVER_LOG
from drillcore_formats.settings import SettingsError
from drillcore_proto.v1 import (
    accounts_pb2,
    audit_pb2,
    communities_pb2,
    cores_pb2,
    corpora_pb2,
    documents_pb2,
    embeddings_pb2,
    envelopes_pb2,
    events_pb2,
    exports_pb2,
    facts_pb2,
    graphs_pb2,
    nodes_pb2,
    provenance_pb2,
    quads_pb2,
    server_pb2,
    signatures_pb2,
    sources_pb2,
    tenants_pb2,
)
from drillcore_server import VERSION
from drillcore_server.app.background import Background
from drillcore_server.app.config import EngineKind, Settings, split_address
from drillcore_server.app.factories import (
    add_first_token,
    open_authenticator,
    open_keyring,
    open_preparer,
    open_readers,
    tokens_of,
)
from drillcore_server.app.grpc_server import GrpcServer, Service
from drillcore_server.app.indexes import open_indexes
from drillcore_server.app.keepers import FactHousekeeper, Housekeeper, MigrationKeeper, StoreKeeper
from drillcore_server.audit.check_log import LogChecker
from drillcore_server.audit.log_keeper import LogKeeper, open_signing, raise_alert
from drillcore_server.audit.log_writer import LogWriter
from drillcore_server.audit.query import AuditLogs
from drillcore_server.audit.reviews import Reviews
from drillcore_server.audit.search import LogSearch, Terms
from drillcore_server.audit.sequencer import GATHER_S, POLL_S
from drillcore_server.audit.service import AuditService
from drillcore_server.audit.signable import SignableRecords, SignableReviews
from drillcore_server.communities.community_keeper import CommunityKeeper
from drillcore_server.communities.find.process import Processes
from drillcore_server.communities.memberships import CommunityCache
from drillcore_server.communities.recompute import CommunityRuns
from drillcore_server.communities.service import CommunityService
from drillcore_server.cores.export_core import CoreExporter
from drillcore_server.cores.imports.import_core import CoreImporter
from drillcore_server.cores.service import CoreService
from drillcore_server.cores.uploads import CoreUploads
from drillcore_server.documents.document_planner import DocumentPlanner
from drillcore_server.documents.ingestion.cited_chunks import CitedChunks
from drillcore_server.documents.ingestion.prepared_documents import Preparer
from drillcore_server.documents.processors import forget_passages
from drillcore_server.documents.service import DocumentService
from drillcore_server.embeddings.migration import Migrator
from drillcore_server.embeddings.service import EmbeddingService
from drillcore_server.envelopes.request import EnvelopeReads
from drillcore_server.envelopes.service import EnvelopeService
from drillcore_server.envelopes.store import envelope_store
from drillcore_server.erasure.destroy_keys import Eraser
from drillcore_server.erasure.purge import Purger
from drillcore_server.erasure.service import SourceService
from drillcore_server.events.service import EventService
from drillcore_server.events.watch import Watchers
from drillcore_server.exports.bundle import Binder, Trails
from drillcore_server.exports.export import Exporter
from drillcore_server.exports.pdf.pdf_signature import open_pdf_options
from drillcore_server.exports.service import ExportService
from drillcore_server.exports.signable import SignableExports
from drillcore_server.facts.change import FactPlanner
from drillcore_server.facts.fact_reads import FactReads
from drillcore_server.facts.index import SimilarFacts
from drillcore_server.facts.keeper import FactKeeper
from drillcore_server.facts.service import FactService
from drillcore_server.facts.session_facts import FactSessions
from drillcore_server.facts.signable import SignableFacts
from drillcore_server.facts.state_hash import StateHashes
from drillcore_server.facts.update import QuarantineReviews
from drillcore_server.graphs.quad_service import QuadService
from drillcore_server.graphs.service import GraphService, ProvenanceService
from drillcore_server.graphs.slice import Slicer
from drillcore_server.graphs.turn_graph import TurnGraphs
from drillcore_server.hierarchy.query import NodeSearch
from drillcore_server.hierarchy.service import NodeService
from drillcore_server.hierarchy.signable import SignableNodes
from drillcore_server.identity.authenticator import Authenticator
from drillcore_server.identity.bearer_tokens import Mint
from drillcore_server.identity.credentials import Credentials
from drillcore_server.identity.service import AccountService
from drillcore_server.kernel.corpus_at_revision import CorpusReads
from drillcore_server.kernel.errors import Refused
from drillcore_server.kernel.journal import Journal, SigningKeys, log_key
from drillcore_server.kernel.revise import Reviser
from drillcore_server.kernel.telemetry import Metrics
from drillcore_server.kernel.unit import Unit
from drillcore_server.signatures.model import TargetKind
from drillcore_server.signatures.service import SignatureService
from drillcore_server.signatures.targets import Targets
from drillcore_server.storage.audit_records import RecordOpener
from drillcore_server.storage.ids import AccountId, CorpusId, FactId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.store import open_store
from drillcore_server.tenancy.corpus_service import CorpusService
from drillcore_server.tenancy.service import TenantService
from drillcore_server.tenancy.trim import Trimmer
from drillcore_server.tokenizers.models import open_models
from drillcore_server.transport.exchange import Record
from drillcore_server.transport.pipeline import Pipeline, TimeLimits
from drillcore_server.transport.service import ServerService
from drillcore_server.transport.stages import Admit, Authenticate, Log, Measure, RequestIds
from drillcore_server.vectors.embedding.cache import CachingEmbedder
from drillcore_server.vectors.embedding.embedders import Embedders, model_of
from drillcore_server.vectors.index_keeper import TEND_EVERY_S


class Server:
    """A server on an engine that is already open. Call `start`, then `stop`. The caller closes the engine."""

    def __init__(self, settings: Settings, engine: Engine, log: structlog.stdlib.BoundLogger) -> None:
        self._settings = settings.server
        self._engine = engine
        self.log = log
        directories, header = open_store(engine, settings.engine.store_path)
        self._keys = Keyspace(directories)
        self.metrics = Metrics()
        self.metrics.follow("engine", engine.figures)
        self._admit = Admit()
        self._stopping = threading.Event()
        tokens = tokens_of(settings)
        authenticator = open_authenticator(settings, engine, self._keys, tokens)
        self._add_first_token = partial(add_first_token, tokens, settings, engine, self._keys, log)
        self._open = ExitStack()
        with self._open:  # closes what was opened if something below raises
            self.keyring = self._open.enter_context(open_keyring(settings.engine, engine))
            self._signing = self._open_signing(settings, header.store_id)
            sealed = SealedRecords(self.keyring)
            self._keeper, self.logs = self._open_logs(settings, sealed)
            self._unit = self._open_unit(header.store_id, sealed)
            self._reads = CorpusReads(self._unit, sealed, self.keyring)
            self._reviser = Reviser(engine, self._unit, sealed, self.keyring)
            folder = settings.vectors.folder(settings.engine.data_dir)
            self.indexes = open_indexes(engine, self.keyring, settings.vectors, folder, log)
            self._services = self._wire(settings, header)
            self._housekeeper = self._open_housekeeper()
            self._store_keeper = StoreKeeper(engine, settings.engine.store_path, header.store_id, self._tell_store)
            self._background, self._log_background = self._open_background()
            self._grpc = GrpcServer(self._settings, self._services, self._make_pipeline(authenticator), log)
            self._open = self._open.pop_all()

    def _open_signing(self, settings: Settings, store: UUID) -> SigningKeys:
        signing = self._open.enter_context(
            open_signing(settings.audit, settings.audit_key_dir, self._engine, self._keys, store)
        )
        if signing.notice:
            self.log.warning("audit key made", notice=signing.notice)
        return signing

    def _open_logs(self, settings: Settings, sealed: SealedRecords) -> tuple[LogKeeper, AuditLogs]:
        opener, terms = RecordOpener(self._signing.store, sealed), Terms(self.keyring)
        writer = LogWriter(self._keys, opener, terms, self._signing)
        alone = settings.engine.kind is EngineKind.EMBEDDED
        keeper = LogKeeper.open(
            settings.audit, self._engine, self._keys, writer, self.log, self._alert, self._open, alone=alone
        )
        self.metrics.follow("audit", keeper.figures)
        search = LogSearch(self._keys, opener, terms)
        checker = LogChecker(self._keys, opener, search, self._signing.trusted)
        return keeper, AuditLogs(self._signing, opener, search, checker, keeper.sequencer.wait)

    def _open_unit(self, store: UUID, sealed: SealedRecords) -> Unit:
        journal = Journal(self._keys, self.keyring, sealed, store, self._signing)
        page_bytes_max = self._settings.message_bytes_max // 2
        nudge = self._keeper.sequencer.nudge
        return Unit(self._engine, self._keys, journal, page_bytes_max, nudge, self._settings.regions)

    def _open_housekeeper(self) -> Housekeeper:
        retention = timedelta(seconds=self._settings.request_retention_s)
        sweep = self.sessions.sweep
        return Housekeeper(self._engine, self._unit, self.keyring, retention, sweep, self.log, self._stopping)

    def _wire(self, settings: Settings, header: StoreHeader) -> list[Service]:
        """Makes the services of all capabilities. `start` begins their background work."""
        preparer = open_preparer(settings.ingest, self._open)
        readers = open_readers(settings.ingest, preparer, self._open)
        self._forget_on_erasure(preparer)
        weights = settings.facts.importance
        cited = CitedChunks(self._engine)
        self.keyring.on_erased.append(cited.forget)
        documents = DocumentPlanner(self._reviser, self.indexes.outlines, cited, preparer, readers, weights)
        counter = preparer.digester.counter
        changed = FactPlanner(self._reads, self._reviser, preparer.embedders, counter, weights)
        found = CommunityCache(self._engine)
        facts = self._open_facts(settings, preparer.embedders, found)
        credentials = Credentials(self._unit, settings.auth, self._tell_lockout)
        return [
            *self._identity(credentials),
            *self._tenancy(),
            *self._hierarchy(documents, preparer.embedders),
            *self._audit(settings, header.store_id, credentials),
            *self._facts(settings, facts, changed),
            *self._communities(settings, facts, found),
            *self._embeddings(settings, preparer.embedders, documents),
            *self._envelopes(settings, facts, found),
            *self._cores_and_graphs(preparer.embedders),
            *self._server(settings, header.format_version),
        ]

    def _identity(self, credentials: Credentials) -> list[Service]:
        mint = Mint(self.keyring.derived(log_key(self.keyring, SERVER_LOG), b"bearer tokens"))
        return [_service(accounts_pb2, "AccountService", AccountService(self._unit, credentials, mint))]

    def _tenancy(self) -> list[Service]:
        trimmer = Trimmer(self._engine, self._keys)
        return [
            _service(tenants_pb2, "TenantService", TenantService(self._unit)),
            _service(corpora_pb2, "CorpusService", CorpusService(self._unit, trimmer)),
        ]

    def _hierarchy(self, documents: DocumentPlanner, embedders: Embedders) -> list[Service]:
        service = DocumentService(
            self._reads,
            documents,
            upload_bytes_max=self._settings.upload_bytes_max,
            hierarchy_bytes_max=self._settings.hierarchy_bytes_max,
        )
        search = NodeSearch(self._reads, self.indexes.sections, self.indexes.chunks, embedders)
        return [
            _service(documents_pb2, "DocumentService", service),
            _service(nodes_pb2, "NodeService", NodeService(search)),
        ]

    def _audit(self, settings: Settings, store: UUID, credentials: Credentials) -> list[Service]:
        """The audit log, signatures and exports."""
        reads, signing = self._reads, self._signing
        targets = signing_targets(reads, self.logs.opener)
        signatures = SignatureService(reads.unit, reads.sealed, targets, credentials, signing)
        reviews = Reviews(reads.unit, reads.keyring, reads.sealed)
        trails = Trails(self._engine, self._keys, self.logs.search, signing)
        pdf = open_pdf_options(settings.audit, settings.engine.data_dir, store)
        exporter = Exporter(self._engine, reads, Binder(trails, pdf))
        return [
            _service(audit_pb2, "AuditService", AuditService(reads.unit, self.logs, reviews)),
            _service(signatures_pb2, "SignatureService", signatures),
            _service(exports_pb2, "ExportService", ExportService(exporter)),
        ]

    def _open_facts(self, settings: Settings, embedders: Embedders, communities: CommunityCache) -> FactReads:
        idle = timedelta(seconds=settings.facts.session_idle_s)
        facts_max = settings.facts.session_facts_max
        reads = self._reads
        self.sessions = FactSessions(
            self._engine,
            self._unit,
            reads.sealed,
            self.keyring,
            idle,
            facts_max,
            lambda tr, session: envelope_store(reads, session.tenant).end_session(tr, session),
        )
        states = StateHashes(self._engine)
        self.keyring.on_erased.append(states.forget)
        return FactReads(self._reads, embedders, self.indexes.facts, states, self.sessions, communities)

    def _facts(self, settings: Settings, facts: FactReads, changed: FactPlanner) -> list[Service]:
        self.fact_housekeeper = FactHousekeeper(FactKeeper(changed), settings.facts, self.log, self._stopping)
        reviews = QuarantineReviews(self._reads, self._signing, self._tell_quarantine)
        return [_service(facts_pb2, "FactService", FactService(facts, changed, reviews))]

    def _communities(self, settings: Settings, facts: FactReads, found: CommunityCache) -> list[Service]:
        runs = CommunityRuns(self._reviser, Processes(), settings.communities, self.log)
        self.communities = CommunityKeeper(runs, self._stopping)
        return [_service(communities_pb2, "CommunityService", CommunityService(facts, found, runs))]

    def _embeddings(self, settings: Settings, embedders: Embedders, documents: DocumentPlanner) -> list[Service]:
        """Embedding models of corpora; sources and their erasure."""
        indexes = (self.indexes.chunks, self.indexes.facts)
        migrator = Migrator(self._reviser, embedders, indexes, self._stopping.is_set)
        own = model_of(embedders.own)
        self._migrations = MigrationKeeper(self._engine, self._keys, migrator, own, self.log)
        purger = Purger(self._engine, self._unit)
        eraser = Eraser(self._reviser, documents, purger, settings.erasure.purge_days)
        return [
            _service(sources_pb2, "SourceService", SourceService(self._reads, eraser)),
            _service(embeddings_pb2, "EmbeddingService", EmbeddingService(self._reads, migrator)),
        ]

    def _envelopes(self, settings: Settings, facts: FactReads, found: CommunityCache) -> list[Service]:
        models = open_models(settings.envelopes.model, settings.envelopes.models)
        indexes = self.indexes
        reads = EnvelopeReads(facts, indexes.words, indexes.sections, indexes.chunks, found, models, settings.envelopes)
        return [_service(envelopes_pb2, "EnvelopeService", EnvelopeService(reads))]

    def _cores_and_graphs(self, embedders: Embedders) -> list[Service]:
        reads, reviser = self._reads, self._reviser
        self.uploads = CoreUploads(self._settings.core_bytes_max, self._settings.core_upload_keep_s)
        exporter = CoreExporter(self._engine, reads, self._signing)
        cores = CoreService(exporter, CoreImporter(reviser, embedders, self.uploads))
        turns = TurnGraphs(self._engine)
        self.keyring.on_erased.append(turns.forget)
        slicer = Slicer(reads, self.indexes.facts, turns, SimilarFacts())
        return [
            _service(cores_pb2, "CoreService", cores),
            _service(provenance_pb2, "ProvenanceService", ProvenanceService(reads)),
            _service(quads_pb2, "QuadService", QuadService(reads, reviser, self._settings.upload_bytes_max)),
            _service(graphs_pb2, "GraphService", GraphService(slicer, reviser)),
        ]

    def _server(self, settings: Settings, format_version: int) -> list[Service]:
        self._watchers = Watchers(min(self._settings.watchers_max, self._settings.workers // 2))
        watched = EventService(self._unit, self._watchers, self._settings.stream_idle_s)
        bytes_max = self._settings.message_bytes_max
        about = ServerService(self._unit, settings.engine.kind.value, format_version, bytes_max)
        return [_service(events_pb2, "EventService", watched), _service(server_pb2, "ServerService", about)]

    def _open_background(self) -> tuple[Background, Background]:
        """The keepers of the store, and the keepers of the audit logs. The latter stop last, after the last record."""
        keepers = Background(self.log, self._report_keeper, self._stopping)
        self._store_keeper.join(keepers)
        self._housekeeper.join(keepers)
        self.fact_housekeeper.join(keepers)
        self._migrations.join(keepers)
        keepers.add("communities", self.communities.run_due, self.communities.every_s)
        indexes = self.indexes.keeper
        keepers.add("indexes", lambda _now: indexes.tend_due(self._stopping.is_set), TEND_EVERY_S, indexes.wake)
        logs = Background(self.log, self._report_keeper)
        sequencer, publisher = self._keeper.sequencer, self._keeper.publisher
        logs.add("sequencer", lambda _now: sequencer.keep(logs.stopping.is_set), POLL_S, sequencer.wake, GATHER_S)
        logs.add("publisher", lambda _now: publisher.publish(), publisher.every_s)
        return keepers, logs

    def _tell_store(self, answers: bool, sound: bool) -> None:
        self._admit.store_is_sound = sound
        self._grpc.set_serving(answers)

    def _report_keeper(self, name: str, succeeded: bool) -> None:
        self.metrics.observe_keeper(name, succeeded)
        self._grpc.set_health(f"drillcore.keeper.{name}", succeeded)

    def _alert(self, kind: str, detail: dict[str, Any]) -> None:
        """Records an alert of the audit log's threads. They have written it to the server's log already."""
        try:
            raise_alert(self._unit, kind, detail)
        except Refused as refused:
            self.log.error("alert not recorded", kind=kind, reason=refused.reason.name)

    def start(self) -> int:
        """Begins to answer calls and returns the port. Raises `SettingsError` if it cannot listen there."""
        port = self._grpc.listen()
        if self._settings.metrics_listen:
            try:
                self._metrics_server = self.metrics.serve(*split_address(self._settings.metrics_listen, "listen"))
            except OSError as error:
                message = f"server.metrics_listen {self._settings.metrics_listen}: {error.strerror or error}"
                raise SettingsError(message) from error
        self._add_first_token()
        self._log_background.start()
        self._background.start()
        self._grpc.start()
        self.log.info("serving", version=VERSION, listen=self._settings.listen, port=port)
        return port

    def stop(self) -> None:
        """Takes no new calls, waits for calls under way, at most for the grace of the settings, and returns."""
        self.log.info("stopping", grace_s=self._settings.shutdown_grace_s)
        self._stopping.set()
        self._watchers.stopping.set()
        self.communities.stop()
        self._grpc.refuse_new_calls()
        self._admit.close(self._settings.shutdown_grace_s)
        self._grpc.stop()
        if self._settings.metrics_listen:
            self._metrics_server.shutdown()
            self._metrics_server.server_close()
        self._background.stop()
        self.indexes.keeper.save()
        self.uploads.close()
        self._log_background.stop()
        self._keeper.finish()
        self.close()
        self.log.info("stopped")

    def close(self) -> None:
        """Closes what the server opened itself. Call it directly only for a server that was never started."""
        self._open.close()

    def _make_pipeline(self, authenticator: Authenticator) -> Pipeline:
        return Pipeline(
            [
                RequestIds(),
                Log(self.log),
                Measure(self.metrics),
                self._admit,
                Record(
                    self._unit,
                    self.log,
                    reason_required=self._settings.reason_required,
                    strangers_per_minute=self._settings.strangers_per_minute,
                ),
                Authenticate(authenticator),
            ],
            TimeLimits(self._settings.timeout_default_s, self._settings.timeout_max_s, self._settings.stream_idle_s),
        )

    def _tell_lockout(self, account: AccountId) -> None:
        self.metrics.lockouts.inc()
        self.log.warning("account locked after wrong passwords", account_id=str(account))

    def _forget_on_erasure(self, preparer: Preparer) -> None:
        """Clears caches of texts after every erasure, because the caches do not know the sources of the texts."""
        caches: list[Callable[[], None]] = [forget_passages]
        models = (preparer.embedder, *preparer.former)
        caches += [model.forget for model in models if isinstance(model, CachingEmbedder)]
        self.keyring.on_erased.append(lambda _corpora: [forget() for forget in caches])

    def _tell_quarantine(self, corpus: CorpusId, facts: Sequence[FactId]) -> None:
        """Logs and counts facts that were put into quarantine. The operator should review their source."""
        self.metrics.quarantines.inc(len(facts))
        ids = list(map(str, facts))
        self.log.warning("facts quarantined", corpus_id=str(corpus), facts=len(facts), fact_ids=ids)


def signing_targets(reads: CorpusReads, opener: RecordOpener) -> Targets:
    """Everything that can be signed."""
    keys, keyring = reads.unit.keys, reads.keyring
    return Targets(
        keyring,
        {
            TargetKind.NODE: SignableNodes(reads),
            TargetKind.FACT: SignableFacts(reads),
            TargetKind.AUDIT_RECORD: SignableRecords(keys, keyring, opener),
            TargetKind.REVIEW: SignableReviews(keys, keyring, reads.sealed),
            TargetKind.EXPORT: SignableExports(keys, keyring),
        },
    )


def _service(protocol: ModuleType, name: str, service: object) -> Service:
    return protocol.DESCRIPTOR.services_by_name[name], service

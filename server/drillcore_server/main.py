"""The one place where a server's parts are put together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from drillcore.audit.leaves import SERVER_LOG
from drillcore.settings import SettingsError
from drillcore_fdb.engine import Engine
from drillcore_fdb.format import open_store
from drillcore_proto.v1 import (
    accounts_pb2,
    audit_pb2,
    corpora_pb2,
    documents_pb2,
    events_pb2,
    exports_pb2,
    nodes_pb2,
    server_pb2,
    signatures_pb2,
    tenants_pb2,
)
from drillcore_server.audit.checking import LogChecker
from drillcore_server.audit.indexes import Terms
from drillcore_server.audit.journal import Journal, log_key
from drillcore_server.audit.keeping import LogKeeper, open_signing
from drillcore_server.audit.opening import RecordOpener
from drillcore_server.audit.search import LogSearch
from drillcore_server.audit.sequencing import LogWriter
from drillcore_server.audit.signers import SigningKeys
from drillcore_server.auth.authenticator import Authenticator
from drillcore_server.auth.tokens import Mint
from drillcore_server.callers import open_authenticator
from drillcore_server.commands.audit_logs import AuditLogs
from drillcore_server.commands.credentials import Credentials
from drillcore_server.commands.export_corpus import Exporter
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.raise_alert import raise_alert
from drillcore_server.commands.revise import Reviser
from drillcore_server.commands.signing import SigningDesk
from drillcore_server.commands.signing_targets import Targets
from drillcore_server.commands.trim_corpus import Trimmer
from drillcore_server.commands.unit import Unit
from drillcore_server.commands.viewing import Library
from drillcore_server.commands.watch_events import Watchers
from drillcore_server.config import EngineKind, Settings, TlsSettings, split_address
from drillcore_server.derived.indexes import Indexes, open_indexes
from drillcore_server.domain.errors import Refused
from drillcore_server.domain.ids import AccountId
from drillcore_server.domain.importance import ImportanceSettings
from drillcore_server.engines import open_keyring
from drillcore_server.exporting.bundle import Binder
from drillcore_server.exporting.press import open_press
from drillcore_server.exporting.trails import Trails
from drillcore_server.fabric import Fabric
from drillcore_server.housekeeper import Housekeeper
from drillcore_server.ingest.embedding.cache import CachingEmbedder
from drillcore_server.ingest.prepare import Preparer
from drillcore_server.ingest.processing import forget_passages
from drillcore_server.ingest.readers import Readers
from drillcore_server.metrics import Metrics
from drillcore_server.models import open_preparer, open_readers
from drillcore_server.rpc.accounts import AccountService
from drillcore_server.rpc.audit_trail import AuditTrailService
from drillcore_server.rpc.corpora import CorpusService
from drillcore_server.rpc.documents import DocumentService
from drillcore_server.rpc.events import EventService
from drillcore_server.rpc.exports import ExportService
from drillcore_server.rpc.nodes import NodeService
from drillcore_server.rpc.pipeline import Pipeline, TimeLimits, UnknownMethods
from drillcore_server.rpc.recording import Record
from drillcore_server.rpc.server_info import ServerService
from drillcore_server.rpc.signatures import SignatureService
from drillcore_server.rpc.stages import Admit, Authenticate, Log, Measure, RequestIds
from drillcore_server.rpc.tenants import TenantService
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.sealed import SealedRecords
from drillcore_server.version import VERSION

_LAST_ANSWERS_S = 0.5
"""For the last answers to get away. gRPC would wait longer for those who only watch our health."""


class Server:
    """A server on an engine that is already open. `start`, then `stop`; the engine stays the caller's to close."""

    def __init__(self, settings: Settings, engine: Engine, log: structlog.stdlib.BoundLogger) -> None:
        self._settings = settings.server
        self._engine = engine
        self.log = log
        root, header = open_store(engine)
        self._keys = Keyspace(root)
        self.metrics = Metrics()
        self.metrics.follow("engine", engine.figures)
        self._admit = Admit()
        authenticator = open_authenticator(settings, engine, self._keys, self.log)
        self._open = ExitStack()
        self.keyring = keyring = self._open.enter_context(open_keyring(settings.engine, engine))
        signing = self._open.enter_context(
            open_signing(settings.audit, settings.engine.data_dir, engine, self._keys, header.store_id)
        )
        if signing.notice:
            self.log.warning("audit key made", notice=signing.notice)
        sealed = SealedRecords(keyring)
        self._keeper, self.logs = self._open_logs(settings, sealed, signing)
        journal = Journal(self._keys, keyring, sealed, header.store_id, signing)
        page_bytes_max = self._settings.message_bytes_max // 2
        self._unit = unit = Unit(
            engine, self._keys, journal, page_bytes_max, self._keeper.sequencer.nudge, self._settings.regions
        )
        info = ServerService(unit, settings.engine.kind.value, header.format_version, self._settings.message_bytes_max)
        preparer = open_preparer(settings.ingest, self._open)
        readers = open_readers(settings.ingest, preparer, self._open)
        folder = settings.vectors.folder(settings.engine.data_dir)
        indexes = open_indexes(engine, keyring, settings.vectors, folder, self.log)
        library, ingester = knowledge(engine, unit, keyring, preparer, readers, indexes, settings.facts.importance)
        self._forget_on_erasure(preparer)
        self._stopping = threading.Event()
        self.fabric = Fabric(
            settings, engine, (library, ingester), indexes, signing, self.metrics, self.log, self._stopping
        )
        retention = timedelta(seconds=self._settings.request_retention_s)
        self._housekeeper = Housekeeper(
            engine, unit, keyring, retention, self.fabric.sessions.sweep, self.log, self._stopping
        )
        corpora = CorpusService(unit, Trimmer(engine, self._keys))
        documents = DocumentService(
            library,
            ingester,
            upload_bytes_max=self._settings.upload_bytes_max,
            hierarchy_bytes_max=self._settings.hierarchy_bytes_max,
        )
        credentials = Credentials(unit, settings.auth, self._tell_lockout)
        mint = Mint(keyring.derived(log_key(keyring, SERVER_LOG), b"bearer tokens"))
        desk = SigningDesk(library, Targets(library, self.logs.opener), credentials, signing)
        self._watchers = Watchers(min(self._settings.watchers_max, self._settings.workers // 2))
        watched = EventService(unit, self._watchers, self._settings.stream_idle_s)
        trails = Trails(engine, self._keys, self.logs.search, signing)
        press = open_press(settings.audit, settings.engine.data_dir, header.store_id)
        exporter = Exporter(engine, library, Binder(trails, press))
        self._services: list[tuple[ServiceDescriptor, object]] = [
            (accounts_pb2.DESCRIPTOR.services_by_name["AccountService"], AccountService(unit, credentials, mint)),
            (tenants_pb2.DESCRIPTOR.services_by_name["TenantService"], TenantService(unit)),
            (corpora_pb2.DESCRIPTOR.services_by_name["CorpusService"], corpora),
            (documents_pb2.DESCRIPTOR.services_by_name["DocumentService"], documents),
            (nodes_pb2.DESCRIPTOR.services_by_name["NodeService"], NodeService(library)),
            (audit_pb2.DESCRIPTOR.services_by_name["AuditService"], AuditTrailService(library, self.logs)),
            (signatures_pb2.DESCRIPTOR.services_by_name["SignatureService"], SignatureService(desk)),
            (exports_pb2.DESCRIPTOR.services_by_name["ExportService"], ExportService(exporter)),
            (events_pb2.DESCRIPTOR.services_by_name["EventService"], watched),
            *self.fabric.services,
            (server_pb2.DESCRIPTOR.services_by_name["ServerService"], info),
        ]
        self._health = health.HealthServicer()
        self._grpc = self._make_grpc(self._make_pipeline(authenticator))

    def _open_logs(
        self, settings: Settings, sealed: SealedRecords, signing: SigningKeys
    ) -> tuple[LogKeeper, AuditLogs]:
        opener, terms = RecordOpener(signing.store, sealed), Terms(self.keyring)
        writer = LogWriter(self._keys, opener, terms, signing)
        alone = settings.engine.kind is EngineKind.EMBEDDED
        keeper = LogKeeper.open(
            settings.audit, self._engine, self._keys, writer, self.log, self._alert, self._open, alone=alone
        )
        self.metrics.follow("audit", keeper.figures)
        search = LogSearch(self._keys, opener, terms)
        checker = LogChecker(self._keys, opener, search, signing.trusted)
        return keeper, AuditLogs(signing, opener, search, checker, keeper.sequencer.wait)

    def _alert(self, kind: str, detail: dict[str, Any]) -> None:
        """Records what the log's threads have to tell; they have logged it already."""
        try:
            raise_alert(self._unit, kind, detail)
        except Refused as refused:
            self.log.error("alert not recorded", kind=kind, reason=refused.reason.name)

    def start(self) -> int:
        """Begins to answer; the port it listens on. Raises `SettingsError` if it cannot listen there."""
        port = self._listen()
        if self._settings.metrics_listen:
            try:
                self._metrics_server = self.metrics.serve(*split_address(self._settings.metrics_listen, "listen"))
            except OSError as error:
                message = f"server.metrics_listen {self._settings.metrics_listen}: {error.strerror or error}"
                raise SettingsError(message) from error
        self._keeper.start()
        self._housekeeper.start()
        self.fabric.start()
        self._grpc.start()
        for service, _ in self._services:
            self._health.set(service.full_name, health_pb2.HealthCheckResponse.SERVING)
        self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        self.log.info("serving", version=VERSION, listen=self._settings.listen, port=port)
        return port

    def stop(self) -> None:
        """Takes no new calls, waits for those under way up to the grace, then returns."""
        self.log.info("stopping", grace_s=self._settings.shutdown_grace_s)
        self._stopping.set()
        self._watchers.stopping.set()
        self.fabric.communities.stop()
        self._health.enter_graceful_shutdown()
        self._admit.close(self._settings.shutdown_grace_s)
        self._grpc.stop(min(_LAST_ANSWERS_S, self._settings.shutdown_grace_s)).wait()
        if self._settings.metrics_listen:
            self._metrics_server.shutdown()
            self._metrics_server.server_close()
        self._housekeeper.join()
        self.fabric.join()
        self._keeper.stop()
        self.close()
        self.log.info("stopped")

    def close(self) -> None:
        """Lets go of what it opened itself; for a server that was never started."""
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

    def _make_grpc(self, pipeline: Pipeline) -> grpc.Server:
        limit = self._settings.message_bytes_max
        server = grpc.server(
            ThreadPoolExecutor(self._settings.workers, thread_name_prefix="drillcore-rpc"),
            options=[
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", limit),
                ("grpc.so_reuseport", 0),
            ],
        )
        server.add_generic_rpc_handlers(tuple(pipeline.bind(*service) for service in self._services))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._settings.reflection:
            names = [service.full_name for service, _ in self._services]
            reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        server.add_generic_rpc_handlers((UnknownMethods(self.log),))
        return server

    def _listen(self) -> int:
        try:
            if self._settings.tls is None:
                return self._grpc.add_insecure_port(self._settings.listen)
            return self._grpc.add_secure_port(self._settings.listen, _credentials(self._settings.tls))
        except (RuntimeError, OSError) as error:
            raise SettingsError(f"server.listen {self._settings.listen}: cannot listen there: {error}") from error

    def _tell_lockout(self, account: AccountId) -> None:
        self.metrics.lockouts.inc()
        self.log.warning("account locked after wrong passwords", account_id=str(account))

    def _forget_on_erasure(self, preparer: Preparer) -> None:
        """What is kept in memory of texts goes when something is erased: nobody knows which source they are of."""
        caches: list[Callable[[], None]] = [forget_passages]
        models = (preparer.embedder, *preparer.former)
        caches += [model.forget for model in models if isinstance(model, CachingEmbedder)]
        self.keyring.on_erased.append(lambda _corpora: [forget() for forget in caches])


def knowledge(
    engine: Engine,
    unit: Unit,
    keyring: Keyring,
    preparer: Preparer,
    readers: Readers,
    indexes: Indexes,
    weights: ImportanceSettings,
) -> tuple[Library, Ingester]:
    """What reads and what changes the hierarchy; both see the same caches and models."""
    sealed, outlines = SealedRecords(keyring), indexes.outlines
    library = Library(unit, sealed, keyring, indexes.sections, indexes.chunks, preparer.embedders)
    reviser = Reviser(engine, unit, sealed)
    ingester = Ingester(engine, unit, reviser, keyring, sealed, outlines, preparer, readers, weights)
    return library, ingester


def _credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    client_ca = tls.client_ca_file.read_bytes() if tls.client_ca_file else None
    pair = (tls.key_file.read_bytes(), tls.certificate_file.read_bytes())
    return grpc.ssl_server_credentials([pair], client_ca, require_client_auth=client_ca is not None)

"""The fact fabric of a server, put together: facts, communities, sources, embedding models, and who keeps them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta

import structlog
from google.protobuf.descriptor import ServiceDescriptor

from drillcore_fdb.engine import Engine
from drillcore_proto.v1 import (
    communities_pb2,
    cores_pb2,
    embeddings_pb2,
    envelopes_pb2,
    facts_pb2,
    graphs_pb2,
    provenance_pb2,
    quads_pb2,
    sources_pb2,
)
from drillcore_server.audit.signers import SigningKeys
from drillcore_server.commands.community_keeper import CommunityKeeper
from drillcore_server.commands.community_runs import CommunityRuns
from drillcore_server.commands.core_uploads import CoreUploads
from drillcore_server.commands.envelope_library import EnvelopeLibrary
from drillcore_server.commands.erasing import Eraser
from drillcore_server.commands.export_core import CoreExporter
from drillcore_server.commands.fact_changing import FactDesk
from drillcore_server.commands.fact_keeper import FactKeeper
from drillcore_server.commands.fact_library import FactLibrary
from drillcore_server.commands.fact_sessions import FactSessions
from drillcore_server.commands.import_core import CoreImporter
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.migrating import Migrator
from drillcore_server.commands.purging import Purger
from drillcore_server.commands.quarantine_reviews import QuarantineReviews
from drillcore_server.commands.slice import Slicer
from drillcore_server.commands.viewing import Library
from drillcore_server.communities.process import Processes
from drillcore_server.config import Settings
from drillcore_server.derived.communities import CommunityCache
from drillcore_server.derived.graphs import TurnGraphs
from drillcore_server.derived.indexes import Indexes
from drillcore_server.derived.similar_facts import SimilarFacts
from drillcore_server.derived.state_hashes import StateHashes
from drillcore_server.domain.ids import CorpusId, FactId
from drillcore_server.fact_housekeeper import FactHousekeeper
from drillcore_server.ingest.embedding.embedders import model_of
from drillcore_server.metrics import Metrics
from drillcore_server.migrations import MigrationThread
from drillcore_server.rpc.communities import CommunityService
from drillcore_server.rpc.cores import CoreService
from drillcore_server.rpc.embeddings import EmbeddingService
from drillcore_server.rpc.envelopes import EnvelopeService
from drillcore_server.rpc.facts import FactService
from drillcore_server.rpc.graphs import GraphService
from drillcore_server.rpc.provenance import ProvenanceService
from drillcore_server.rpc.quads import QuadService
from drillcore_server.rpc.sources import SourceService
from drillcore_server.tokenizing.models import open_models


class Fabric:
    """`start` begins what is done in the background; told to stop, `join` waits for it."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        knowledge: tuple[Library, Ingester],
        indexes: Indexes,
        signing: SigningKeys,
        metrics: Metrics,
        log: structlog.stdlib.BoundLogger,
        stopping: threading.Event,
    ) -> None:
        library, ingester = knowledge
        unit = library.unit
        self._metrics = metrics
        self._log = log
        self.indexes = indexes
        self.sessions = FactSessions(
            engine,
            unit,
            library.sealed,
            library.keyring,
            timedelta(seconds=settings.facts.session_idle_s),
            settings.facts.session_facts_max,
        )
        runs = CommunityRuns(ingester, Processes(), settings.communities, log)
        self.communities = CommunityKeeper(runs)
        states = StateHashes(engine)
        library.keyring.on_erased.append(states.forget)
        facts = FactLibrary(library, indexes.facts, states, self.sessions, CommunityCache(engine))
        desk = FactDesk(library, ingester)
        self.housekeeper = FactHousekeeper(FactKeeper(desk), settings.facts, log)
        migrator = Migrator(ingester, (indexes.chunks, indexes.facts), stopping.is_set)
        own = model_of(ingester.preparer.embedder)
        self._migrations = MigrationThread(engine, unit.keys, migrator, own, log, stopping)
        eraser = Eraser(ingester, Purger(engine, unit), settings.erasure.purge_days)
        envelopes = EnvelopeLibrary(
            facts, indexes.words, open_models(settings.envelopes.model, settings.envelopes.models), settings.envelopes
        )
        reviews = QuarantineReviews(library, signing, self._tell_quarantine)
        self.uploads = CoreUploads(settings.server.core_bytes_max, settings.server.core_upload_keep_s)
        cores = CoreService(CoreExporter(engine, library, signing), CoreImporter(library, ingester, self.uploads))
        quads = QuadService(library, ingester, settings.server.upload_bytes_max)
        turns = TurnGraphs(engine)
        library.keyring.on_erased.append(turns.forget)
        slicer = Slicer(facts, turns, SimilarFacts())
        self.services: list[tuple[ServiceDescriptor, object]] = [
            (facts_pb2.DESCRIPTOR.services_by_name["FactService"], FactService(facts, desk, reviews)),
            (communities_pb2.DESCRIPTOR.services_by_name["CommunityService"], CommunityService(facts, runs)),
            (sources_pb2.DESCRIPTOR.services_by_name["SourceService"], SourceService(library, eraser)),
            (embeddings_pb2.DESCRIPTOR.services_by_name["EmbeddingService"], EmbeddingService(library, migrator)),
            (envelopes_pb2.DESCRIPTOR.services_by_name["EnvelopeService"], EnvelopeService(envelopes)),
            (cores_pb2.DESCRIPTOR.services_by_name["CoreService"], cores),
            (provenance_pb2.DESCRIPTOR.services_by_name["ProvenanceService"], ProvenanceService(library)),
            (quads_pb2.DESCRIPTOR.services_by_name["QuadService"], quads),
            (graphs_pb2.DESCRIPTOR.services_by_name["GraphService"], GraphService(slicer, ingester)),
        ]

    def start(self) -> None:
        self.indexes.keeper.start()
        self.communities.start()
        self.housekeeper.start()
        self._migrations.start()

    def join(self) -> None:
        self.housekeeper.stop()
        self._migrations.join()
        self.indexes.keeper.stop()
        self.uploads.close()

    def _tell_quarantine(self, corpus: CorpusId, facts: Sequence[FactId]) -> None:
        """The operator is to review the source."""
        self._metrics.quarantines.inc(len(facts))
        ids = list(map(str, facts))
        self._log.warning("facts quarantined", corpus_id=str(corpus), facts=len(facts), fact_ids=ids)

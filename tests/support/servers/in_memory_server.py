# ruff: noqa: ARG002, N802  # arguments and names of the methods are those of the protocol
"""A gRPC server that keeps what it is sent in dictionaries, to test the client against the protocol.

It checks nothing. It makes the simplest possible hierarchy of a corpus's documents: one section, a chunk for each
document, a raw for each chunk. Answers that a test sets take precedence: see `Peer.failures`.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2_grpc

from drillcore_proto.reasons import DOMAIN, REQUEST_ID_HEADER, SERVER_VERSION_HEADER, Reason
from drillcore_proto.v1 import (
    communities_pb2,
    cores_pb2,
    corpora_pb2,
    corpora_pb2_grpc,
    documents_pb2,
    documents_pb2_grpc,
    embeddings_pb2,
    envelopes_pb2,
    events_pb2,
    facts_pb2,
    graphs_pb2,
    nodes_pb2,
    nodes_pb2_grpc,
    provenance_pb2,
    quads_pb2,
    server_pb2,
    server_pb2_grpc,
    sources_pb2,
    tenants_pb2,
    tenants_pb2_grpc,
)

PROCESSING = nodes_pb2.Processing(processor="built-in", version="1")

Failure = Callable[[grpc.ServicerContext], None]


def explained(
    code: grpc.StatusCode, reason: str, message: str = "no", *, domain: str = DOMAIN, **metadata: str
) -> Failure:
    """A failure with an ErrorInfo, as the server gives it."""
    info = error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata)
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(code=code.value[0], message=message, details=[detail])

    def fail(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, message)

    return fail


def because(reason: Reason, message: str = "no") -> Failure:
    return explained(reason.code, reason.name, message)


@dataclass
class Hierarchy:
    """The documents of a corpus by source, and the nodes that follow from them."""

    corpus_id: str
    documents: dict[str, documents_pb2.Document] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """By document id."""
    history: list[nodes_pb2.Revision] = field(default_factory=list)

    @property
    def revision(self) -> int:
        return len(self.history)

    def commit(self, request_id: str, action: str, added: int, removed: int) -> None:
        revision = nodes_pb2.Revision(
            revision=self.revision + 1,
            by="test",
            request_id=request_id,
            action=action,
            documents_added=added,
            documents_removed=removed,
            section_ids=[self.id("section")],
        )
        revision.at.FromJsonString("2026-01-02T03:04:05Z")
        self.history.append(revision)

    def put(self, header: documents_pb2.DocumentHeader, content: bytes) -> documents_pb2.DocumentOutcome:
        kinds = documents_pb2.OutcomeKind
        source, text = header.source_id or header.name, content.decode(errors="replace")
        if not content:
            return documents_pb2.DocumentOutcome(
                name=header.name, kind=kinds.OUTCOME_KIND_FAILED, reason="EMPTY", message="there is nothing in it"
            )
        known = self.documents.get(source)
        if known is not None and self.texts[known.id] == text:
            return documents_pb2.DocumentOutcome(
                name=header.name, kind=kinds.OUTCOME_KIND_UNCHANGED, document_id=known.id
            )
        document = documents_pb2.Document(
            id=self.id(f"document {source} {hashlib.sha256(content).hexdigest()}"),
            corpus_id=self.corpus_id,
            source_id=source,
            source_version=known.source_version + 1 if known else 1,
            title=header.name,
            media_type=header.media_type or "text/plain",
            content_hash=hashlib.sha256(content).hexdigest(),
            preprocessing=["decoded as utf-8"],
            metadata=header.metadata,
            chunks=1,
            raws=1,
            characters=len(text),
            tokens=len(text.split()),
            created_by="test",
        )
        document.created_at.FromJsonString("2026-01-02T03:04:05Z")
        self.documents[source] = document
        self.texts[document.id] = text
        kind = kinds.OUTCOME_KIND_UPDATED if known else kinds.OUTCOME_KIND_ADDED
        return documents_pb2.DocumentOutcome(name=header.name, kind=kind, document_id=document.id)

    def nodes(self) -> dict[str, nodes_pb2.Node]:
        """All nodes, parents before children, in reading order."""
        found = [self._master(), self._section()] if self.documents else []
        for document in self.documents.values():
            found += [self._chunk(document), self._raw(document)]
        for node in found:
            node.corpus_id, node.created_by, node.version = self.corpus_id, "test", self.revision
            node.created_at.FromJsonString("2026-01-02T03:04:05Z")
            node.child_ids.extend(child.id for child in found if child.parent_id == node.id)
            node.child_count = len(node.child_ids)
        return {node.id: node for node in found}

    def below(self, node_id: str, level: int) -> list[nodes_pb2.Node]:
        nodes = self.nodes()
        return [node for node in nodes.values() if node.level == level and node_id in self.above(node.id)]

    def above(self, node_id: str) -> list[str]:
        """The node and its ancestors, the lowest first."""
        nodes, found = self.nodes(), [node_id]
        while parent := nodes[found[-1]].parent_id:
            found.append(parent)
        return found

    def id(self, name: str) -> str:
        return str(uuid.uuid5(uuid.UUID(self.corpus_id), name))

    def _citation(self, document: documents_pb2.Document) -> nodes_pb2.Citation:
        text = self.texts[document.id]
        return nodes_pb2.Citation(
            document_id=document.id,
            chunk_id=self.id(f"chunk {document.id}"),
            span=nodes_pb2.Span(start=0, end=len(text)),
            text=text,
            weight=0.5,
        )

    def _master(self) -> nodes_pb2.Node:
        documents = self.documents.values()
        finding = nodes_pb2.Finding(kind="obligation", text="keep it", citation=self._citation(next(iter(documents))))
        content = nodes_pb2.MasterContent(
            summary="All in all.",
            citations=[self._citation(document) for document in documents],
            findings=[finding],
            keywords=["audit"],
            statistics=nodes_pb2.Statistics(
                documents=len(documents),
                sections=1,
                chunks=len(documents),
                raws=len(documents),
                characters=sum(document.characters for document in documents),
                tokens=sum(document.tokens for document in documents),
            ),
            processing=PROCESSING,
        )
        return nodes_pb2.Node(id=self.id("master"), level=nodes_pb2.LEVEL_MASTER, master=content)

    def _section(self) -> nodes_pb2.Node:
        content = nodes_pb2.SectionContent(
            title="Records",
            category="records",
            summary="Of records.",
            citations=[self._citation(document) for document in self.documents.values()],
            entities=[nodes_pb2.Entity(type="regulation", value="21 CFR 11")],
            keywords=["record"],
            document_count=len(self.documents),
            chunk_count=len(self.documents),
            processing=PROCESSING,
        )
        parent = self.id("master")
        return nodes_pb2.Node(id=self.id("section"), level=nodes_pb2.LEVEL_SECTION, parent_id=parent, section=content)

    def _chunk(self, document: documents_pb2.Document) -> nodes_pb2.Node:
        text = self.texts[document.id]
        content = nodes_pb2.ChunkContent(
            document_id=document.id,
            source_id=document.source_id,
            span=nodes_pb2.Span(start=0, end=len(text)),
            headings=["Part A", document.title],
            page=1,
            summary=text[:200],
            quotes=[self._citation(document)],
            entities=[nodes_pb2.Entity(type="date", value="2026-01-02")],
            keywords=["chunk"],
            tokens=document.tokens,
            embedding_model="static",
            processing=PROCESSING,
        )
        identity, parent = self.id(f"chunk {document.id}"), self.id("section")
        return nodes_pb2.Node(id=identity, level=nodes_pb2.LEVEL_CHUNK, parent_id=parent, chunk=content)

    def _raw(self, document: documents_pb2.Document) -> nodes_pb2.Node:
        text = self.texts[document.id]
        content = nodes_pb2.RawContent(
            document_id=document.id,
            span=nodes_pb2.Span(start=0, end=len(text)),
            content=text,
            preprocessing=document.preprocessing,
        )
        identity, parent = self.id(f"raw {document.id}"), self.id(f"chunk {document.id}")
        return nodes_pb2.Node(id=identity, level=nodes_pb2.LEVEL_RAW, parent_id=parent, raw=content)


@dataclass
class Peer:
    """What the server holds, what it saw and what it shall answer."""

    address: str = ""
    api_version: str = "1.5"
    failures: list[Failure] = field(default_factory=list)
    """Each of the next calls fails with the next of these."""
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Method and metadata of every call."""
    requests: list[Any] = field(default_factory=list)
    records: dict[str, Any] = field(default_factory=dict)
    """Tenants and corpora by id, oldest first."""
    hierarchies: dict[str, Hierarchy] = field(default_factory=dict)
    """By corpus id."""
    trims: list[corpora_pb2.TrimCorpusResponse] = field(default_factory=list)
    """The answers of the next trims."""
    results: dict[str, list[Any]] = field(default_factory=dict)
    """The answers of uploads, by request id."""
    on_part: Callable[[Any, grpc.ServicerContext], object] = lambda _part, _context: None
    """Sees every part of an upload as it comes, and may fail the call."""
    answers: dict[str, Any] = field(default_factory=dict)
    """The answers of methods for facts and graphs, by name: a message, or a function of the request."""
    streams: dict[str, Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]]] = field(default_factory=dict)
    """As `answers`, for methods that stream."""
    health: health.HealthServicer = field(default_factory=health.HealthServicer)

    def request_ids(self) -> list[str]:
        return [metadata[REQUEST_ID_HEADER] for _, metadata in self.seen]

    def records_of(self, kind: type) -> list[Any]:
        return [record for record in self.records.values() if isinstance(record, kind)]

    def put(self, record: Any) -> Any:
        record.id = record.id or str(uuid.uuid4())
        record.version += 1
        record.created_by = "test"
        record.created_at.FromJsonString("2026-01-02T03:04:05Z")
        record.updated_at.FromJsonString("2026-01-02T03:04:06Z")
        self.records[record.id] = record
        return record

    def find(self, request: Any, kind: type, reason: Reason, context: grpc.ServicerContext) -> Any:
        for record in self.records_of(kind):
            if request.id == record.id or (not request.id and request.name == record.name):
                return record
        return because(reason, "there is no such thing")(context)

    def change(self, record: Any, request: Any) -> Any:
        if request.HasField("name"):
            record.name = request.name
        record.metadata.update(request.set_metadata)
        for key in request.remove_metadata:
            record.metadata.pop(key, None)
        return self.put(record)

    def page(self, request: Any, kind: type) -> tuple[list[Any], str]:
        return page_of(request, self.records_of(kind))

    def hierarchy(self, corpus_id: str) -> Hierarchy:
        return self.hierarchies.setdefault(corpus_id, Hierarchy(corpus_id))

    def hierarchy_of(self, node_id: str, context: grpc.ServicerContext) -> Hierarchy:
        for hierarchy in self.hierarchies.values():
            if node_id in hierarchy.nodes():
                return hierarchy
        return because(Reason.NODE_NOT_FOUND, f"there is no node {node_id}")(context)


def page_of(request: Any, found: list[Any]) -> tuple[list[Any], str]:
    start, size = int(request.page_token or 0), request.page_size or 2
    return found[start : start + size], str(start + size) if start + size < len(found) else ""


class _Tenants(tenants_pb2_grpc.TenantServiceServicer):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def CreateTenant(self, request, context):
        tenant = tenants_pb2.Tenant(id=request.id, name=request.name, metadata=request.metadata)
        return tenants_pb2.CreateTenantResponse(tenant=self.peer.put(tenant))

    def GetTenant(self, request, context):
        found = self.peer.find(request, tenants_pb2.Tenant, Reason.TENANT_NOT_FOUND, context)
        return tenants_pb2.GetTenantResponse(tenant=found)

    def ListTenants(self, request, context):
        tenants, token = self.peer.page(request, tenants_pb2.Tenant)
        return tenants_pb2.ListTenantsResponse(tenants=tenants, next_page_token=token)

    def UpdateTenant(self, request, context):
        found = self.peer.find(request, tenants_pb2.Tenant, Reason.TENANT_NOT_FOUND, context)
        return tenants_pb2.UpdateTenantResponse(tenant=self.peer.change(found, request))

    def DeleteTenant(self, request, context):
        del self.peer.records[request.id]
        return tenants_pb2.DeleteTenantResponse()


class _Corpora(corpora_pb2_grpc.CorpusServiceServicer):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def CreateCorpus(self, request, context):
        if not request.tenant_id:
            because(Reason.TENANT_REQUIRED, "name a tenant")(context)
        corpus = corpora_pb2.Corpus(
            id=request.id,
            tenant_id=request.tenant_id,
            name=request.name,
            description=request.description,
            metadata=request.metadata,
        )
        return corpora_pb2.CreateCorpusResponse(corpus=self.peer.put(corpus))

    def GetCorpus(self, request, context):
        found = self.peer.find(request, corpora_pb2.Corpus, Reason.CORPUS_NOT_FOUND, context)
        return corpora_pb2.GetCorpusResponse(corpus=found)

    def ListCorpora(self, request, context):
        corpora, token = self.peer.page(request, corpora_pb2.Corpus)
        return corpora_pb2.ListCorporaResponse(corpora=corpora, next_page_token=token)

    def UpdateCorpus(self, request, context):
        found = self.peer.find(request, corpora_pb2.Corpus, Reason.CORPUS_NOT_FOUND, context)
        if request.HasField("description"):
            found.description = request.description
        if request.WhichOneof("retention") == "retention_days":
            found.retention_days = request.retention_days
        elif request.keep_everything:
            found.ClearField("retention_days")
        if request.WhichOneof("hold"):
            reason = request.hold_reason or request.release_reason
            hold = corpora_pb2.LegalHold(on=request.WhichOneof("hold") == "hold_reason", reason=reason, by="test")
            hold.at.FromJsonString("2026-01-02T03:04:06Z")
            found.legal_hold.CopyFrom(hold)
        return corpora_pb2.UpdateCorpusResponse(corpus=self.peer.change(found, request))

    def DeleteCorpus(self, request, context):
        del self.peer.records[request.id]
        return corpora_pb2.DeleteCorpusResponse()

    def TrimCorpus(self, request, context):
        return self.peer.trims.pop(0)


class _Documents(documents_pb2_grpc.DocumentServiceServicer):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def AddDocuments(self, request_iterator, context):
        """Reports each document as it comes. Once all have come, adds them and reports the outcomes."""
        request_id = dict(context.invocation_metadata())[REQUEST_ID_HEADER]
        target, uploads, ended = None, [], False
        for part in request_iterator:
            self.peer.on_part(part, context)
            match part.WhichOneof("part"):
                case "target":
                    target = part.target
                    self.peer.requests.append(target)
                case "header":
                    uploads.append((part.header, bytearray()))
                    progress = documents_pb2.Progress(documents_prepared=len(uploads))
                    yield documents_pb2.AddDocumentsResponse(progress=progress)
                case "data":
                    uploads[-1][1].extend(part.data)
                case "end":
                    ended = part.end.documents == len(uploads)
                case None:
                    because(Reason.INVALID_ARGUMENT, "a part that is nothing")(context)
        if not ended:
            because(Reason.CANCELLED, "the documents stopped before their end")(context)
        if request_id not in self.peer.results:
            hierarchy = self.peer.hierarchy(target.corpus_id)
            self.peer.results[request_id] = list(self._added(hierarchy, uploads, request_id))
        yield from self.peer.results[request_id]

    def _added(self, hierarchy: Hierarchy, uploads: list[tuple[Any, bytearray]], request_id: str) -> Iterator[Any]:
        outcomes = [hierarchy.put(header, bytes(content)) for header, content in uploads]
        yield from (documents_pb2.AddDocumentsResponse(outcome=outcome) for outcome in outcomes)
        kinds = Counter(outcome.kind for outcome in outcomes)
        added, updated, unchanged, failed = (kinds[kind] for kind in range(1, 5))
        if added or updated:
            hierarchy.commit(request_id, "AddDocuments", added + updated, updated)
        done = documents_pb2.AddDocumentsDone(
            revision=hierarchy.revision,
            added=added,
            updated=updated,
            unchanged=unchanged,
            failed=failed,
            sections_changed=int(added + updated > 0),
        )
        yield documents_pb2.AddDocumentsResponse(done=done)

    def RemoveDocuments(self, request, context):
        hierarchy = self.peer.hierarchy(request.corpus_id)
        sources = {document.id: source for source, document in hierarchy.documents.items()}
        for document_id in request.document_ids:
            if document_id not in sources:
                because(Reason.DOCUMENT_NOT_FOUND, f"there is no document {document_id}")(context)
            del hierarchy.documents[sources[document_id]]
        hierarchy.commit("", "RemoveDocuments", 0, len(request.document_ids))
        return documents_pb2.RemoveDocumentsResponse(revision=hierarchy.revision, removed=len(request.document_ids))

    def GetDocument(self, request, context):
        hierarchy = self.peer.hierarchy(request.corpus_id)
        for document in hierarchy.documents.values():
            if document.id == request.id:
                text = hierarchy.texts[document.id] if request.with_text else ""
                return documents_pb2.GetDocumentResponse(document=document, text=text, revision=hierarchy.revision)
        return because(Reason.DOCUMENT_NOT_FOUND, "there is no such document")(context)

    def ListDocuments(self, request, context):
        hierarchy = self.peer.hierarchy(request.corpus_id)
        documents, token = page_of(request, list(hierarchy.documents.values()))
        return documents_pb2.ListDocumentsResponse(
            documents=documents, next_page_token=token, revision=hierarchy.revision
        )


class _Nodes(nodes_pb2_grpc.NodeServiceServicer):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def GetNode(self, request, context):
        hierarchy = self.peer.hierarchy_of(request.id, context)
        node = hierarchy.nodes()[request.id]
        if request.with_embedding:
            node.chunk.embedding.extend([0.5, -0.25])
        return nodes_pb2.GetNodeResponse(node=node, revision=hierarchy.revision)

    def Query(self, request, context):
        hierarchies = [self.peer.hierarchy(corpus_id) for corpus_id in request.corpus_ids] or list(
            self.peer.hierarchies.values()
        )
        found = [
            node for hierarchy in hierarchies for node in hierarchy.nodes().values() if node.level == request.level
        ]
        if request.text:
            found = [node for node in found if request.text in str(node)]
        score = 0.5 if request.text else None
        nodes, token = page_of(request, found)
        return nodes_pb2.QueryResponse(
            hits=[nodes_pb2.QueryHit(node=node, score=score) for node in nodes],
            next_page_token=token,
            revisions={hierarchy.corpus_id: hierarchy.revision for hierarchy in hierarchies},
        )

    def DrillDown(self, request, context):
        hierarchy = self.peer.hierarchy_of(request.id, context)
        nodes, token = page_of(request, hierarchy.below(request.id, request.target))
        return nodes_pb2.DrillDownResponse(nodes=nodes, next_page_token=token, revision=hierarchy.revision)

    def RollUp(self, request, context):
        hierarchy = self.peer.hierarchy_of(request.ids[0], context)
        nodes = hierarchy.nodes()
        above = [
            ancestor
            for key in request.ids
            for ancestor in hierarchy.above(key)
            if nodes[ancestor].level == request.target
        ]
        common = above[0] if len(set(above)) == 1 else hierarchy.id("master")
        found = [nodes[ancestor] for ancestor in dict.fromkeys(above)]
        return nodes_pb2.RollUpResponse(nodes=found, common=nodes[common], revision=hierarchy.revision)

    def GetHistory(self, request, context):
        node_id = request.node_id
        hierarchy = self.peer.hierarchy_of(node_id, context) if node_id else self.peer.hierarchy(request.corpus_id)
        revisions, token = page_of(request, hierarchy.history[::-1])
        oldest = 1 + max((revision.revision for revision in hierarchy.history if revision.trimmed), default=-1)
        return nodes_pb2.GetHistoryResponse(revisions=revisions, next_page_token=token, oldest_revision=oldest)


class _Server(server_pb2_grpc.ServerServiceServicer):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def GetServerInfo(self, request, context):
        return server_pb2.GetServerInfoResponse(
            version="9.8.7",
            api_version=self.peer.api_version,
            principal="operator",
            engine="embedded",
            format_version=1,
            message_bytes_max=1000,
        )


FABRIC = [
    module.DESCRIPTOR.services_by_name[name]
    for module, name in (
        (facts_pb2, "FactService"),
        (communities_pb2, "CommunityService"),
        (sources_pb2, "SourceService"),
        (events_pb2, "EventService"),
        (embeddings_pb2, "EmbeddingService"),
        (envelopes_pb2, "EnvelopeService"),
        (quads_pb2, "QuadService"),
        (provenance_pb2, "ProvenanceService"),
        (cores_pb2, "CoreService"),
        (graphs_pb2, "GraphService"),
    )
]


def _scripted(peer: Peer, service: ServiceDescriptor) -> grpc.GenericRpcHandler:
    """A service that answers what the test says in `Peer.answers` and `Peer.streams`."""

    def handler(method: MethodDescriptor) -> grpc.RpcMethodHandler:
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)

        def converse(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            return peer.streams[method.name](messages, context)

        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(
                converse,
                request.FromString,
                response.SerializeToString,
            )

        def answer(message: Any, _context: grpc.ServicerContext) -> Any:
            said = peer.answers[method.name]
            return said(message) if callable(said) else said

        return grpc.unary_unary_rpc_method_handler(answer, request.FromString, response.SerializeToString)

    handlers = {method.name: handler(method) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


class _Watch(grpc.ServerInterceptor):
    """Notes each call, then fails it if a failure is set."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def intercept_service(self, continuation, details):
        handler = continuation(details)
        if "grpc.health" in details.method:
            return handler

        def begin(context):
            context.set_trailing_metadata(((SERVER_VERSION_HEADER, "9.8.7"),))
            if self.peer.failures:
                self.peer.failures.pop(0)(context)
            if handler is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

        def answer(request, context):
            self.peer.requests.append(request)
            begin(context)
            return handler.unary_unary(request, context)

        def converse(requests, context):
            begin(context)
            yield from handler.stream_stream(requests, context)

        self.peer.seen.append((details.method, dict(details.invocation_metadata)))
        if handler and handler.stream_stream:
            return grpc.stream_stream_rpc_method_handler(
                converse, handler.request_deserializer, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            answer, handler and handler.request_deserializer, handler and handler.response_serializer
        )


@contextlib.contextmanager
def running(
    peer: Peer | None = None, *, address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None
) -> Iterator[Peer]:
    """The peer, which listens until the block ends."""
    peer = peer or Peer()
    pool = futures.ThreadPoolExecutor(4)
    server = grpc.server(pool, interceptors=[_Watch(peer)], options=[("grpc.max_receive_message_length", 300_000)])
    tenants_pb2_grpc.add_TenantServiceServicer_to_server(_Tenants(peer), server)
    corpora_pb2_grpc.add_CorpusServiceServicer_to_server(_Corpora(peer), server)
    documents_pb2_grpc.add_DocumentServiceServicer_to_server(_Documents(peer), server)
    nodes_pb2_grpc.add_NodeServiceServicer_to_server(_Nodes(peer), server)
    server_pb2_grpc.add_ServerServiceServicer_to_server(_Server(peer), server)
    server.add_generic_rpc_handlers([_scripted(peer, service) for service in FABRIC])
    health_pb2_grpc.add_HealthServicer_to_server(peer.health, server)
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    peer.address = f"127.0.0.1:{port}"
    server.start()
    try:
        yield peer
    finally:
        server.stop(None).wait()
        pool.shutdown()

"""Core files as TrustGraph's own tools write them, and raw calls that import them."""

from __future__ import annotations

import base64
import hashlib
import io
import queue
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import grpc
import msgpack
from trustgraph.cli.get_de_core import write_de
from trustgraph.cli.get_kg_core import write_ge, write_library_blob, write_library_metadata, write_triple

from drillcore_formats.quads import Iri
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_proto.v1 import cores_pb2_grpc, quads_pb2, quads_pb2_grpc
from drillcore_server.cores import foreign_store
from drillcore_server.cores.foreign_store import LibraryPlaces
from drillcore_server.cores.imports.import_core import CoreImporter
from drillcore_server.cores.model import EntityVector, LibraryDocument, VectorKind
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.graphs.quad_model import Quad, decoded_term
from drillcore_server.graphs.quad_service import quad_of
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.corpus_store import CORPORA, TENANTS
from drillcore_server.kernel.revise import Reviser
from drillcore_server.storage.store import open_store
from tests.support.servers.running import Running

CORE_ID = "urn:core:handbook"
META = {"id": CORE_ID, "root": CORE_ID, "collection": "default"}
KNOWS = "http://xmlns.com/foaf/0.1/knows"


def iri(value: str) -> dict[str, Any]:
    return {"t": "i", "i": value}


def text(value: str, **more: str) -> dict[str, Any]:
    return {"t": "l", "v": value, **more}


def triple(s: dict[str, Any], p: dict[str, Any], o: dict[str, Any], g: str | None = None) -> dict[str, Any]:
    return {"s": s, "p": p, "o": o} if g is None else {"s": s, "p": p, "o": o, "g": g}


def record(tag: str, payload: object) -> bytes:
    packed: bytes = msgpack.packb((tag, payload), use_bin_type=True)
    return packed


def triples(*items: Mapping[str, Any], **meta: Any) -> bytes:
    file = io.BytesIO()
    write_triple(file, {"metadata": {**META, **meta}, "triples": list(items)})
    return file.getvalue()


def entities(vectors: Mapping[str, Sequence[float]], **meta: Any) -> bytes:
    file = io.BytesIO()
    named = [{"entity": iri(entity), "vector": list(vector)} for entity, vector in vectors.items()]
    write_ge(file, {"metadata": {**META, **meta}, "entities": named})
    return file.getvalue()


def library_document(document: str, content: bytes | None = None, **fields: Any) -> bytes:
    file = io.BytesIO()
    write_library_metadata(file, {"id": document, "kind": "text/plain", "title": f"about {document}", **fields})
    if content is not None:
        write_library_blob(file, {"id": document, "data": base64.b64encode(content).decode()})
    return file.getvalue()


def blob(document: str, content: bytes) -> bytes:
    file = io.BytesIO()
    write_library_blob(file, {"id": document, "data": base64.b64encode(content).decode()})
    return file.getvalue()


def embedded_chunks(vectors: Mapping[str, Sequence[float]]) -> bytes:
    file = io.BytesIO()
    chunks = [{"chunk_id": chunk, "vector": list(vector)} for chunk, vector in vectors.items()]
    write_de(file, {"metadata": META, "chunks": chunks})
    return file.getvalue()


def handbook() -> bytes:
    """A core with something of everything that TrustGraph writes."""
    ann, bob = iri("http://example.org/ann"), iri("http://example.org/bob")
    said = {"t": "t", "tr": triple(ann, iri(KNOWS), bob)}
    return b"".join(
        [
            triples(
                triple(ann, iri(KNOWS), bob),
                triple(ann, iri("http://example.org/name"), text("Ann", ln="en"), "urn:graph:people"),
                triple(
                    {"t": "b", "d": "b0"},
                    iri("http://example.org/age"),
                    text("44", dt="http://www.w3.org/2001/XMLSchema#integer"),
                ),
                triple(said, iri("http://example.org/source"), text("a letter"), "urn:graph:source"),
            ),
            triples(triple(ann, iri(KNOWS), bob)),
            entities({"http://example.org/ann": [0.25, 0.5, -1.0], "http://example.org/bob": [0.1, 0.2, 0.3]}),
            library_document("urn:doc:1", b"The whole handbook.", tags=["hr", "2026"], comments="as printed"),
            library_document("urn:doc:1/p1", "Über Seite eins.".encode(), **{"parent-id": "urn:doc:1"}),
        ]
    )


@dataclass(frozen=True)
class Answers:
    offset: int
    """The byte at which the server wanted the file to go on."""
    progress: Sequence[pb.CoreProgress]
    done: pb.ImportCoreDone

    @property
    def skipped(self) -> list[str]:
        return [skipped.reason for skipped in self.done.skipped]


@dataclass(frozen=True)
class Exported:
    data: bytes
    done: pb.CoreDone


class CoreCaller:
    """Calls raise `grpc.RpcError`; see `refused`."""

    def __init__(self, address: str, token: str, tenant: UUID | None = None) -> None:
        """An operator names the tenant."""
        self._tenant = "" if tenant is None else str(tenant)
        self._channel = grpc.insecure_channel(
            address, [("grpc.enable_retries", 0), ("grpc.max_receive_message_length", 1 << 26)]
        )
        self.cores = cores_pb2_grpc.CoreServiceStub(self._channel)
        self.quads = quads_pb2_grpc.QuadServiceStub(self._channel)
        self._token = token

    def close(self) -> None:
        self._channel.close()

    def options(self, request_id: str | None = None) -> dict[str, Any]:
        metadata = [("authorization", f"Bearer {self._token}")]
        if request_id is not None:
            metadata.append(("drillcore-request-id", request_id))
        return {"metadata": metadata, "timeout": 120.0}

    def send(
        self,
        corpus: str,
        data: bytes,
        *,
        request_id: str | None = None,
        stop_at: int | None = None,
        piece_bytes: int = 100_000,
        end: pb.ImportCoreEnd | None = None,
        **target: Any,
    ) -> Answers:
        """Imports a core; with `stop_at` the caller gives up when it has sent the file up to there."""
        requests: queue.SimpleQueue[pb.ImportCoreRequest | None] = queue.SimpleQueue()
        requests.put(
            pb.ImportCoreRequest(
                target=pb.ImportCoreTarget(**{"tenant_id": self._tenant, "corpus_id": corpus, **target})
            )
        )
        call = self.cores.ImportCore(iter(requests.get, None), **self.options(request_id))
        try:
            offset = next(call).ready.offset_bytes
            for request in _parts(data[:stop_at], offset, piece_bytes):
                requests.put(request)
            if stop_at is None:
                whole = pb.ImportCoreEnd(size_bytes=len(data), sha256=hashlib.sha256(data).digest())
                requests.put(pb.ImportCoreRequest(end=end or whole))
            requests.put(None)
            *progress, last = call
        finally:
            requests.put(None)
            call.cancel()
        return Answers(offset, [answer.progress for answer in progress], last.done)

    def export(self, corpus: str, *, request_id: str | None = None, **fields: Any) -> Exported:
        request = pb.ExportCoreRequest(tenant_id=self._tenant, corpus_id=corpus, **fields)
        *parts, last = self.cores.ExportCore(iter([request]), **self.options(request_id))
        data = b"".join(part.data for part in parts if part.WhichOneof("part") == "data")
        return Exported(data, last.done)

    def quads_of(self, corpus: str) -> dict[Quad, tuple[str, ...]]:
        """The quads that were put, from all pages, with their sources."""
        request = quads_pb2.MatchQuadsRequest(tenant_id=self._tenant, corpus_id=corpus)
        found: dict[Quad, tuple[str, ...]] = {}
        while True:
            page = self.quads.MatchQuads(request, **self.options())
            found |= {quad_of(quad.quad): tuple(quad.source_ids) for quad in page.quads if not quad.derived}
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token


@dataclass(frozen=True)
class ForeignRecords:
    """The records of a corpus that came from other systems."""

    vectors: Sequence[tuple[VectorKind, str, tuple[float, ...]]]
    documents: Mapping[str, LibraryDocument]
    contents: Mapping[str, bytes]


def foreign_records(server: Running, corpus: str) -> ForeignRecords:
    """Reads the records from the store itself, because no call shows them."""
    snapshot = snapshot_of(server, corpus)
    places = LibraryPlaces.of(_reviser(server).keyring, _corpus(server, corpus).number)
    documents = {document.id: document for document in foreign_store.library_documents(snapshot)}
    vectors = [
        (kind, _entity(vector), tuple(foreign_store.unpacked_floats(vector).tolist()))
        for kind in VectorKind
        for vector in foreign_store.entity_vectors(snapshot, kind)
    ]
    contents = {key: b"".join(foreign_store.document_content(snapshot, places(key))) for key in documents}
    return ForeignRecords(sorted(vectors), documents, contents)


def snapshot_of(server: Running, corpus: str) -> BatchedReads:
    """The head of a corpus of any tenant."""
    reviser = _reviser(server)
    found = _corpus(server, corpus)
    keys = reviser.keys.of_corpus(found.number)
    head = server.engine.run(lambda tr: revisions.head(tr, keys))
    return BatchedReads(server.engine, found, keys, reviser.sealed, head)


def _corpus(server: Running, corpus: str) -> Corpus:
    return next(found for found in _corpora(server) if str(found.id) == corpus)


def _entity(vector: EntityVector) -> str:
    if vector.kind is VectorKind.DOCUMENT:
        return vector.entity.decode()
    term = decoded_term(vector.entity)
    assert isinstance(term, Iri)
    return term.value


def _reviser(server: Running) -> Reviser:
    services = {type(service).__name__: service for _, service in server.server._services}
    importer: CoreImporter = services["CoreService"]._importer  # type: ignore[attr-defined]
    return importer.reviser


def _corpora(server: Running) -> list[Corpus]:
    keys = _reviser(server).keys
    tenants = server.engine.run(lambda tr: [tenant.id for tenant, _ in TENANTS.scan(tr, keys.tenants())])
    return [
        corpus
        for tenant in tenants
        for corpus, _ in server.engine.run(lambda tr, t=tenant: list(CORPORA.scan(tr, keys.corpora(t))))  # type: ignore[misc]
    ]


def check_store(server: Running) -> None:
    """Asserts that fsck finds no problem."""
    reviser = _reviser(server)
    store = open_store(server.engine)[1].store_id
    assert Fsck(server.engine, reviser.keys, reviser.keyring, store).run().problems == ()


def import_requests(corpus: str, data: bytes, **target: Any) -> Iterator[pb.ImportCoreRequest]:
    """The requests of an import that does not wait to hear what the server already has."""
    yield pb.ImportCoreRequest(target=pb.ImportCoreTarget(corpus_id=corpus, **target))
    yield from _parts(data, 0, 1 << 20)
    yield pb.ImportCoreRequest(end=pb.ImportCoreEnd(size_bytes=len(data), sha256=hashlib.sha256(data).digest()))


def _parts(data: bytes, offset: int, piece_bytes: int) -> Iterator[pb.ImportCoreRequest]:
    for start in range(offset, len(data), piece_bytes):
        yield pb.ImportCoreRequest(data=data[start : start + piece_bytes])

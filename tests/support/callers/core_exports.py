"""Raw calls of CoreService, a corpus with some of everything in it, and helpers that read core files."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import msgpack

from drillcore import Role
from drillcore_fdb.engine import Transaction
from drillcore_formats.audit.notes import VerifierKey
from drillcore_formats.cores.framing import Blob, blob_content, read_core
from drillcore_formats.cores.parts import PART_KIND, part_arrays
from drillcore_formats.cores.records import read_library
from drillcore_formats.quads import Iri
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_proto.v1 import cores_pb2_grpc, facts_pb2, graphs_pb2, graphs_pb2_grpc, quads_pb2, quads_pb2_grpc
from drillcore_server.cores.foreign_store import EntityVectorWrites, LibraryWrites, packed_floats
from drillcore_server.cores.model import EntityVector, LibraryDocument, VectorKind
from drillcore_server.graphs.quad_model import encoded_term
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel import revisions
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import CorpusId, CorpusNumber, SourceId, TenantId
from drillcore_server.storage.sealed import SealedRecords
from tests.support.callers.erasures import ErasingCaller
from tests.support.callers.knowledge import File, files
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, ACME_ID, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, person
from tests.support.stores.aged import keys_of, keyspace

FACT = "Records of board meetings are kept for ten years after the meeting, together with their annexes."


@dataclass(frozen=True)
class Exported:
    """The whole answer to one ExportCore call."""

    data: bytes
    done: pb.CoreDone
    progress: list[pb.CoreProgress]


class CoreCaller(ErasingCaller):
    def __init__(self, server: Running, token: str) -> None:
        super().__init__(server, token)
        self.cores = cores_pb2_grpc.CoreServiceStub(self._channel)
        self.quads = quads_pb2_grpc.QuadServiceStub(self._channel)
        self.graphs = graphs_pb2_grpc.GraphServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def export(self, corpus: str, request_id: str | None = None, **fields: Any) -> Exported:
        request = pb.ExportCoreRequest(corpus_id=corpus, **fields)
        *answers, last = self.cores.ExportCore(iter([request]), **self.options(request_id))
        data = b"".join(answer.data for answer in answers)
        progress = [answer.progress for answer in answers if answer.WhichOneof("part") == "progress"]
        assert last.WhichOneof("part") == "done"
        return Exported(data, last.done, progress)

    def put_quads(self, corpus: str, *quads: quads_pb2.Quad, source: str = "") -> None:
        request = quads_pb2.PutQuadsRequest(corpus_id=corpus, quads=quads, source_id=source)
        self.quads.PutQuads(request, **self.options())

    def put_turns(self, corpus: str, *turns: graphs_pb2.Turn, **fields: Any) -> None:
        request = graphs_pb2.PutTurnsRequest(corpus_id=corpus, turns=turns, **fields)
        self.graphs.PutTurns(request, **self.options())


def iri(value: str) -> quads_pb2.Term:
    return quads_pb2.Term(iri=value)


def text(value: str, **fields: str) -> quads_pb2.Term:
    return quads_pb2.Term(literal=quads_pb2.Literal(value=value, **fields))


@contextmanager
def serving(path: Path, **settings: Any) -> Iterator[tuple[Running, CoreCaller]]:
    """A server, and a caller that may write in acme."""
    with running(path, auth=QUICK, **settings) as server:
        create_tenants(server.client())
        with CoreCaller(server, ACME) as caller:
            yield server, caller


@contextmanager
def auditor(server: Running) -> Iterator[CoreCaller]:
    """A caller with the role that exports need."""
    found = person(server, "eve", Role.AUDITOR)
    login = server.client(None).login(found.account.login, found.password)
    with CoreCaller(server, login.token) as caller:
        yield caller


QUOTED = quads_pb2.Term(triple=quads_pb2.Triple(subject=iri("urn:x:a"), predicate=iri("urn:x:says"), object=text("b")))
QUADS = [
    quads_pb2.Quad(subject=iri("urn:x:a"), predicate=iri("urn:x:says"), object=text("plain")),
    quads_pb2.Quad(subject=iri("urn:x:a"), predicate=iri("urn:x:says"), object=text("g\u00fcltig", language="de")),
    quads_pb2.Quad(
        subject=quads_pb2.Term(blank="b1"),
        predicate=iri("urn:x:counts"),
        object=text("7", datatype="http://www.w3.org/2001/XMLSchema#integer"),
        graph="urn:x:graph",
    ),
    quads_pb2.Quad(subject=QUOTED, predicate=iri("urn:x:said"), object=iri("urn:x:c"), graph="urn:x:graph"),
]


def fill(caller: CoreCaller, corpus: str) -> None:
    """Fills a corpus with some of everything that it can have, except records that come with cores."""
    caller.add(corpus, *files(dict(list(REGULATIONS.items())[:4])), File("empty.txt", "Nothing much."))
    caller.put(corpus, facts_pb2.FactDraft(content=FACT, source_id="minutes"))
    gone = caller.put(corpus, facts_pb2.FactDraft(content=f"{FACT} Always.", source_id="minutes")).fact_ids[0]
    caller.set_status(gone, facts_pb2.FACT_STATUS_DELETED)
    caller.put_quads(corpus, *QUADS)
    caller.put_quads(corpus, *QUADS[:2], source="a graph")
    turns = [turn(salience) for salience in (0.25, 0.5, 0.75)]
    first, *replies = [turn.turn_id for turn in turns]
    edges = [graphs_pb2.Edge(parent=first, child=reply, edge_type=graphs_pb2.EDGE_TYPE_REPLY) for reply in replies]
    caller.put_turns(corpus, *turns, edges=edges, source_id="talks")


def turn(salience: float) -> graphs_pb2.Turn:
    return graphs_pb2.Turn(
        turn_id=str(uuid4()),
        session_id="a talk",
        role=graphs_pb2.TURN_ROLE_USER,
        phase=graphs_pb2.PHASE_PLANNING,
        salience=salience,
    )


def plant(server: Running, corpus: str, writes: Iterable[Write]) -> None:
    """Puts records into the head of a corpus, as if they had come with a core."""
    keys = keys_of(server, corpus)
    sealed = SealedRecords(server.server.keyring)

    def work(tr: Transaction) -> None:
        for write in writes:
            assert write.value is not None
            assert write.number is not None
            sealed.put(tr, write.key, revisions.head(tr, keys), write.number, write.value)

    server.engine.run(work)


def foreign(server: Running, corpus: str, source: str = "trustgraph", large: bytes = b"") -> list[Write]:
    """Documents and vectors as a core of another system brings them. The source must have a key."""
    keys, number = keys_of(server, corpus), corpus_number(server, corpus)
    library = LibraryWrites(keys, number, server.server.keyring)
    vectors = EntityVectorWrites(keys, number, server.server.keyring)
    writes: list[Write] = []
    for name, parent, content in (
        ("page/1", "book", b"\x00\xff page"),
        ("book", "", large or b"book"),
        ("a", "page/1", b""),
    ):
        document = LibraryDocument(
            name, "application/pdf", f"Title of {name}", parent, "page", "", ("x", "y"), SourceId(source)
        )
        document = replace(
            document, size_bytes=len(content), sha256=hashlib.sha256(content).digest() if content else b""
        )
        writes += [library.put(document), *library.put_content(name, SourceId(source), [content])]
    entity = encoded_term(Iri("urn:x:a"))
    for kind, name, numbers in (
        (VectorKind.GRAPH, entity, [0.5, 0.1, -2.0]),
        (VectorKind.GRAPH, entity, [0.5, 0.25, -2.0]),
        (VectorKind.DOCUMENT, b"chunk-7", [1.0, 0.0]),
    ):
        writes.append(vectors.put(EntityVector(kind, name, SourceId(source), len(numbers), packed_floats(numbers))))
    return writes


def corpus_number(server: Running, corpus: str) -> CorpusNumber:
    keys = keyspace(server)
    found = server.engine.run(lambda tr: corpora.get(tr, keys, TenantId(ACME_ID), CorpusId(UUID(corpus))))
    return found.number


def verifier(server: Running) -> VerifierKey:
    return server.server.logs.signing.signer(1).verifier


def records_of(core: bytes) -> list[Any]:
    """Everything in a core file, as msgpack decodes it."""
    return list(msgpack.Unpacker(io.BytesIO(core), raw=False))


def part_records(core: bytes) -> list[list[Any]]:
    """The records of a full core, each with its kind first."""
    found: list[list[Any]] = []
    own = ""
    for record in read_core([core]):
        if isinstance(record, Blob):
            found += part_arrays(blob_content(record, 1 << 30)) if record.id == own else ()
        elif record.tag == "lm":
            document = read_library(record)
            own = document.id if document.kind == PART_KIND else ""
    return found

"""Collects everything that the server can say about a corpus, at every revision, as bytes to search in."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import grpc
import pypdfium2
from google.protobuf.message import Message

from drillcore import Client, ExportFormat, Role
from drillcore_proto.v1 import (
    nodes_pb2,
    provenance_pb2,
    provenance_pb2_grpc,
    quads_pb2,
    quads_pb2_grpc,
    sources_pb2_grpc,
)
from drillcore_proto.v1 import sources_pb2 as pb
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords, is_empty
from drillcore_server.storage.sealed import keys_of as header_of
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.store import open_store
from drillcore_server.storage.versioned import Entry
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import LEVELS, at_revision
from tests.support.servers.running import Running
from tests.support.servers.signatories import person
from tests.support.stores.aged import keys_of

MARKER = "zyzzyva"
"""A word in every text that tests erase, and in no other."""
MARKED = f"""# {MARKER.title()} registers of keepers

A keeper must report every {MARKER} to the authority within 30 days, on pain of a fine of EUR 5,000.
The keeper shall keep a register of birds for ten years and show the register of birds to Acme {MARKER.title()} Ltd.
An inspector of the authority may enter the premises of a keeper at any time to inspect the register of birds.
"""
OTHER = """# Registers of keepers

A keeper must report every kestrel to the authority within 30 days, on pain of a fine of EUR 2,000.
The keeper shall keep a register of birds for ten years and show the register of birds to the authority when asked.
An inspector of the authority may enter the premises of a keeper at any time to inspect the register of birds.
"""


SEALED = {
    Space.MASTERS,
    Space.SECTIONS,
    Space.CHUNKS,
    Space.RAW,
    Space.VECTORS,
    Space.DOCUMENTS,
    Space.SOURCES,
    Space.FACTS,
    Space.FACT_VECTORS,
    Space.COMMUNITIES,
    Space.QUADS,
    Space.LIBRARY,
    Space.LIBRARY_BLOBS,
    Space.ENTITY_VECTORS,
    Space.TURNS,
    Space.FOREIGN_SIGNATURES,
}
"""The spaces that the key layout marks as sealed. The list does not come from the purge, which it checks."""


class ErasingCaller(FactCaller):
    def __init__(self, server: Running, token: str) -> None:
        super().__init__(server, token)
        self.sources = sources_pb2_grpc.SourceServiceStub(self._channel)
        self.provenance = provenance_pb2_grpc.ProvenanceServiceStub(self._channel)
        self.quads = quads_pb2_grpc.QuadServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def erase(
        self, corpus: str, source: str, *, request_id: str | None = None, **fields: Any
    ) -> pb.EraseSourceResponse:
        request = pb.EraseSourceRequest(corpus_id=corpus, source_id=source, **fields)
        return self.sources.EraseSource(request, **self.options(request_id))

    def purge(self, corpus: str, request_id: str | None = None) -> pb.PurgeErasedResponse:
        return self.sources.PurgeErased(pb.PurgeErasedRequest(corpus_id=corpus), **self.options(request_id))

    def erasures(self, corpus: str, **fields: Any) -> list[pb.Erasure]:
        request = pb.ListErasuresRequest(corpus_id=corpus, **fields)
        return list(self.sources.ListErasures(request, **self.options()).erasures)

    def ids(self, corpus: str) -> list[str]:
        """The ids of every node, document and fact that the corpus has now."""
        nodes = [node.id for level in LEVELS for node in self.query(corpus, level=level)]
        return [
            *nodes,
            *(document.id for document in self.list_documents(corpus)),
            *(fact.fact_id for fact in self.list(corpus)),
        ]

    def all_answers(self, corpus: str, ids: list[str]) -> Iterator[bytes]:
        """All answers about these ids and about the corpus, at every revision. Refusals are left out."""
        head = self.head(corpus)
        for revision in range(1, head + 1):
            for answer in self._answers_at(corpus, ids, at_revision(revision)):
                yield answer.SerializeToString()
        for record_id in ids:
            with suppress(grpc.RpcError):
                yield from (revision.SerializeToString() for revision in self.history(node_id=record_id))

    def _answers_at(self, corpus: str, ids: list[str], as_of: nodes_pb2.AsOf) -> Iterator[Message]:
        for level in LEVELS:
            yield from self.query(corpus, level=level, as_of=as_of)
        for level in (LEVELS[1], LEVELS[2]):
            yield from self.query(corpus, level=level, text=MARKED, as_of=as_of)
        yield from self.list_documents(corpus, as_of=as_of)
        yield from self.list(corpus, as_of=as_of)
        yield from self.search(MARKED, corpus, as_of=as_of, exact=True, with_embedding=True).hits
        listed = pb.ListSourcesRequest(corpus_id=corpus, as_of=as_of)
        yield self.sources.ListSources(listed, **self.options())
        yield from self._quads(corpus, as_of)
        for record_id in ids:
            for ask in (self._node, self._document, self._fact, self._below, self._above, self._explained):
                with suppress(grpc.RpcError):
                    yield from ask(corpus, record_id, as_of)

    def _node(self, _corpus: str, record_id: str, as_of: nodes_pb2.AsOf) -> list[Message]:
        return [self.node(record_id, as_of=as_of, with_embedding=True)]

    def _document(self, corpus: str, record_id: str, as_of: nodes_pb2.AsOf) -> list[Message]:
        return [self.document(corpus, record_id, as_of)]

    def _fact(self, _corpus: str, record_id: str, as_of: nodes_pb2.AsOf) -> list[Message]:
        return [self.get(record_id, as_of=as_of, with_embedding=True)]

    def _explained(self, corpus: str, record_id: str, as_of: nodes_pb2.AsOf) -> list[Message]:
        request = provenance_pb2.ExplainRequest(node=record_id, corpus_id=corpus, as_of=as_of)
        return [self.provenance.Explain(request, **self.options())]

    def _quads(self, corpus: str, as_of: nodes_pb2.AsOf) -> Iterator[Message]:
        token = ""
        while True:
            request = quads_pb2.MatchQuadsRequest(corpus_id=corpus, as_of=as_of, page_size=1_000, page_token=token)
            page = self.quads.MatchQuads(request, **self.options())
            yield page
            token = page.next_page_token
            if not token:
                return

    def _below(self, _corpus: str, record_id: str, as_of: nodes_pb2.AsOf) -> list[Message]:
        return [node for level in LEVELS[1:] for node in self._quietly(record_id, level, as_of)]

    def _quietly(self, record_id: str, level: int, as_of: nodes_pb2.AsOf) -> list[nodes_pb2.Node]:
        try:
            return self.below(record_id, level, as_of=as_of)
        except grpc.RpcError:
            return []

    def _above(self, _corpus: str, record_id: str, as_of: nodes_pb2.AsOf) -> list[Message]:
        return [self.roll_up(record_id, target=LEVELS[1], as_of=as_of)]


def auditor(server: Running) -> Client:
    return person(server, "eve", Role.AUDITOR).log_in()


def bundle(client: Client, corpus: str, kind: ExportFormat, revision: int) -> bytes:
    file = io.BytesIO()
    client.export_corpus(UUID(corpus), file, format=kind, as_of=revision)
    return file.getvalue()


def members(made: bytes) -> dict[str, bytes]:
    """The files of a bundle, by name. A PDF file is given as its text."""
    zipped = zipfile.ZipFile(io.BytesIO(made))
    return {name: _text(name, zipped.read(name)) for name in zipped.namelist()}


def _text(name: str, content: bytes) -> bytes:
    if not name.endswith(".pdf"):
        return content
    pages = pypdfium2.PdfDocument(content)
    return "".join(page.get_textpage().get_text_range() for page in pages).encode()


def opened(server: Running, corpus: str) -> Iterator[bytes]:
    """Every record of a corpus by revision: in the clear if the keyring can open it, else as it is stored."""
    keys, sealed = keys_of(server, corpus), SealedRecords(server.server.keyring)
    for space in keys.by_revision():
        values, _ = server.engine.run(lambda tr, s=space: versioned.values_page(tr, s.begin, s.end, 100_000))  # type: ignore[misc]
        for entry in values:
            value = entry.value or b""
            is_sealed = keys.space_of(entry.key) in SEALED and entry.value is not None
            try:
                yield sealed.opened(Entry(entry.key, entry.revision, value)).value if is_sealed else value
            except KeyErased:
                yield value


def sealed_under(server: Running, corpus: str, number: int) -> int:
    """How many records have content that is sealed under this key, alone or with other keys."""
    return under_key(server, keys_of(server, corpus), number)


def under_key(server: Running, keys: CorpusKeys, number: int) -> int:
    """As `sealed_under`, for a corpus that may be deleted."""
    found = 0
    for space in keys.by_revision():
        values, _ = server.engine.run(lambda tr, s=space: versioned.values_page(tr, s.begin, s.end, 100_000))  # type: ignore[misc]
        sealed = [entry.value for entry in values if keys.space_of(entry.key) in SEALED and entry.value is not None]
        found += sum(number in header_of(value) for value in sealed if not is_empty(value))
    return found


def problems(server: Running) -> tuple[str, ...]:
    """The problems that fsck finds."""
    root, header = open_store(server.engine)
    return Fsck(server.engine, Keyspace(root), server.server.keyring, header.store_id).run().problems


def files_with(directory: Path, sought: bytes) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file() and sought in path.read_bytes()]

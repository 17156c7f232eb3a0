"""The built-in models, which need no network. Each is loaded on first use, once in a process, and then shared."""

from __future__ import annotations

from functools import cache

from drillcore_server.documents.ingestion.chunk_spans import ChunkSettings
from drillcore_server.documents.ingestion.digest import Digester
from drillcore_server.documents.ingestion.prepared_documents import Preparer
from drillcore_server.documents.processing import ExtractiveProcessor, Processor
from drillcore_server.tokenizers.encodings import TokenCounter, token_counter
from drillcore_server.vectors.embedding.embedders import Embedder
from drillcore_server.vectors.embedding.static import load_static


@cache
def embedder() -> Embedder:
    return load_static()


@cache
def counter() -> TokenCounter:
    return token_counter()


def processor() -> Processor:
    return ExtractiveProcessor(counter())


def preparer(by: Processor | None = None, with_embedder: Embedder | None = None) -> Preparer:
    """Prepares documents with the given models, else with the built-in ones."""
    return Preparer(Digester(counter(), by or processor(), ChunkSettings()), with_embedder or embedder())

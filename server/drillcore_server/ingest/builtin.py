"""The built-in models, which need no network: loaded when first asked for, once in a process, shared ever after."""

from __future__ import annotations

from functools import cache

from drillcore_server.ingest.chunking import ChunkSettings
from drillcore_server.ingest.digesting import Digester
from drillcore_server.ingest.embedding.ports import Embedder
from drillcore_server.ingest.embedding.static import load_static
from drillcore_server.ingest.prepare import Preparer
from drillcore_server.ingest.processing import ExtractiveProcessor, Processor
from drillcore_server.tokenizing.encodings import token_counter
from drillcore_server.tokenizing.ports import TokenCounter


@cache
def embedder() -> Embedder:
    return load_static()


@cache
def counter() -> TokenCounter:
    return token_counter()


def processor() -> Processor:
    return ExtractiveProcessor(counter())


def preparer(by: Processor | None = None, with_embedder: Embedder | None = None) -> Preparer:
    """Prepares documents with these, else with the built-in ones."""
    return Preparer(Digester(counter(), by or processor(), ChunkSettings()), with_embedder or embedder())

"""The built-in models, which need no network: loaded when first asked for, once in a process, shared ever after."""

from __future__ import annotations

from functools import cache

from drillcore_server.ingest.chunking import ChunkSettings
from drillcore_server.ingest.embedding.ports import Embedder
from drillcore_server.ingest.embedding.static import load_static
from drillcore_server.ingest.prepare import Preparer
from drillcore_server.ingest.processing import ExtractiveProcessor
from drillcore_server.ingest.tokens import TokenCounter, token_counter


@cache
def embedder() -> Embedder:
    return load_static()


@cache
def counter() -> TokenCounter:
    return token_counter()


def preparer() -> Preparer:
    return Preparer(counter(), ExtractiveProcessor(counter()), embedder(), ChunkSettings())

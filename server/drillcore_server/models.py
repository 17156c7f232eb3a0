"""The models that the settings ask for: what makes digests and embeddings."""

from __future__ import annotations

from contextlib import ExitStack

from drillcore.settings import SettingsError
from drillcore_server.config import EmbedderKind, IngestSettings, ProcessorKind
from drillcore_server.ingest import builtin
from drillcore_server.ingest.embedding.cache import CachingEmbedder, MemoryCache
from drillcore_server.ingest.embedding.errors import EmbeddingFailed
from drillcore_server.ingest.embedding.minilm import load_minilm, load_onnx_folder
from drillcore_server.ingest.embedding.openai import OpenAIEmbedder
from drillcore_server.ingest.embedding.ports import Embedder
from drillcore_server.ingest.prepare import Preparer
from drillcore_server.ingest.processing import Processor
from drillcore_server.ingest.processing.openai import OpenAIProcessor


def open_preparer(settings: IngestSettings, opened: ExitStack) -> Preparer:
    """What the settings ask for; connections it keeps are closed with `opened`. Raises `SettingsError`."""
    try:
        embedder = _embedder(settings, opened)
    except EmbeddingFailed as error:
        raise SettingsError(f"ingest.embedder {settings.embedder.value}: {error}") from error
    cached = CachingEmbedder(embedder, MemoryCache(settings.embedding_cache_bytes_max))
    return builtin.preparer(_processor(settings, opened), cached)


def _processor(settings: IngestSettings, opened: ExitStack) -> Processor:
    if settings.processor is ProcessorKind.OPENAI:
        assert settings.chat is not None
        return opened.enter_context(OpenAIProcessor(settings.chat, builtin.counter()))
    return builtin.processor()


def _embedder(settings: IngestSettings, opened: ExitStack) -> Embedder:
    if settings.embedder is EmbedderKind.OPENAI:
        assert settings.embeddings is not None
        return opened.enter_context(OpenAIEmbedder(settings.embeddings))
    if settings.embedder is EmbedderKind.MINILM:
        return load_minilm()
    if settings.embedder is EmbedderKind.ONNX:
        assert settings.onnx_folder is not None
        return load_onnx_folder(settings.onnx_folder)
    return builtin.embedder()

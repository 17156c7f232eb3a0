"""The models that the settings ask for: what makes digests and embeddings."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from drillcore.settings import SettingsError
from drillcore_server.config import EmbedderKind, FormerSettings, IngestSettings, ProcessorKind
from drillcore_server.ingest import builtin
from drillcore_server.ingest.embedding.cache import CachingEmbedder, MemoryCache
from drillcore_server.ingest.embedding.errors import EmbeddingFailed
from drillcore_server.ingest.embedding.minilm import load_minilm, load_onnx_folder
from drillcore_server.ingest.embedding.openai import OpenAIEmbedder
from drillcore_server.ingest.embedding.ports import Embedder
from drillcore_server.ingest.prepare import Preparer
from drillcore_server.ingest.processing.chat import ChatSettings
from drillcore_server.ingest.processing.opening import open_processor
from drillcore_server.ingest.readers import Readers, ReadersHere
from drillcore_server.ingest.worker import WorkerSettings
from drillcore_server.ingest.workers import Workers


def open_preparer(settings: IngestSettings, opened: ExitStack) -> Preparer:
    """What the settings ask for; connections it keeps are closed with `opened`. Raises `SettingsError`."""
    own = _cached(settings, settings, opened)
    former = tuple(_cached(one, settings, opened) for one in settings.former)
    prepared = builtin.preparer(open_processor(_chat(settings), builtin.counter(), opened), own)
    return replace(prepared, former=former)


def _cached(model: IngestSettings | FormerSettings, settings: IngestSettings, opened: ExitStack) -> Embedder:
    """Each has a cache of its own: former models need little of theirs."""
    try:
        embedder = _embedder(model, opened)
    except EmbeddingFailed as error:
        raise SettingsError(f"ingest.embedder {model.embedder.value}: {error}") from error
    return CachingEmbedder(embedder, MemoryCache(settings.embedding_cache_bytes_max))


def open_readers(settings: IngestSettings, preparer: Preparer, opened: ExitStack) -> Readers:
    """Where uploads are read, in as many processes as the settings say. They end with `opened`."""
    if settings.workers == 0:
        return ReadersHere(preparer.digester)
    worker = WorkerSettings(_chat(settings), settings.worker_memory_bytes_max)
    workers = Workers(settings.workers, settings.document_timeout_s, worker)
    opened.callback(workers.close)
    return workers


def _chat(settings: IngestSettings) -> ChatSettings | None:
    return settings.chat if settings.processor is ProcessorKind.OPENAI else None


def _embedder(settings: IngestSettings | FormerSettings, opened: ExitStack) -> Embedder:
    if settings.embedder is EmbedderKind.OPENAI:
        assert settings.embeddings is not None
        return opened.enter_context(OpenAIEmbedder(settings.embeddings))
    if settings.embedder is EmbedderKind.MINILM:
        return load_minilm()
    if settings.embedder is EmbedderKind.ONNX:
        assert settings.onnx_folder is not None
        return load_onnx_folder(settings.onnx_folder)
    return builtin.embedder()

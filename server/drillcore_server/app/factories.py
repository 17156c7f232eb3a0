"""Opens the parts that the settings describe: engine, keyring, models, readers of documents, and authenticator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from uuid import UUID

import structlog

from drillcore_fdb.cluster import ClusterEngine, ClusterSettings
from drillcore_fdb.embedded import EmbeddedEngine, EmbeddedSettings, RewritableEngine
from drillcore_fdb.engine import Engine
from drillcore_formats.settings import SettingsError
from drillcore_server.app.config import (
    EmbedderKind,
    EngineKind,
    EngineSettings,
    FormerSettings,
    IngestSettings,
    ProcessorKind,
    Settings,
    TokenSettings,
)
from drillcore_server.documents.ingestion.digest import InProcessReaders, Readers
from drillcore_server.documents.ingestion.prepared_documents import (
    Preparer,
    builtin_counter,
    builtin_embedder,
    builtin_preparer,
)
from drillcore_server.documents.ingestion.reader_pool import Workers
from drillcore_server.documents.ingestion.reader_process import WorkerSettings
from drillcore_server.documents.processors.chat import ChatSettings
from drillcore_server.documents.processors.openai_processor import open_processor
from drillcore_server.identity import bearer_tokens as operator_token
from drillcore_server.identity.authenticator import Authenticator, Issuers, KeyFileError
from drillcore_server.identity.bearer_tokens import Token, Tokens, digest
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel.access import Principal
from drillcore_server.kernel.account_model import EVERYTHING, Grant, Role
from drillcore_server.storage.ids import PrincipalId, TenantId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.vectors.embedding.cache import CachingEmbedder, MemoryCache
from drillcore_server.vectors.embedding.embedders import Embedder, EmbeddingFailed
from drillcore_server.vectors.embedding.minilm import load_minilm, load_onnx_folder
from drillcore_server.vectors.embedding.openai_embedder import OpenAIEmbedder


def open_engine(settings: EngineSettings) -> Engine:
    """Opens the engine. Raises `UnavailableError`, whose message says why and what to do, if it cannot."""
    if settings.kind is EngineKind.CLUSTER:
        return ClusterEngine.open(_cluster(settings))
    return EmbeddedEngine.open(embedded_settings(settings))


def embedded_settings(settings: EngineSettings) -> EmbeddedSettings:
    return EmbeddedSettings(
        path=settings.data_dir,
        durability=settings.durability,
        map_size_bytes=settings.map_size_bytes,
        default_timeout_s=settings.timeout_s,
    )


@contextmanager
def open_keyring(settings: EngineSettings, engine: Engine) -> Iterator[Keyring]:
    """Opens the keyring. It is a separate store: beside the embedded store, or in another directory of the cluster."""
    master_key_file = settings.master_key_path
    if settings.kind is EngineKind.CLUSTER:
        yield Keyring.open(engine, engine.directory(*settings.keyring_path), master_key_file)
        return
    own = RewritableEngine(replace(embedded_settings(settings), path=settings.data_dir / "keyring"))
    try:
        yield Keyring.open(own, own.directory(*settings.keyring_path), master_key_file, own.rewrite)
    finally:
        own.close()


def _cluster(settings: EngineSettings) -> ClusterSettings:
    cluster = settings.cluster
    return ClusterSettings(
        cluster_file=settings.cluster_file,
        tls_certificate_path=cluster.tls_certificate_file,
        tls_key_path=cluster.tls_key_file,
        tls_ca_path=cluster.tls_ca_file,
        tls_verify_peers=cluster.tls_verify_peers,
        tls_password=cluster.tls_password,
        timeout_s=settings.timeout_s,
        connect_timeout_s=cluster.connect_timeout_s,
        knobs=cluster.knobs,
        trace_directory=cluster.trace_directory,
        external_client_directory=cluster.external_client_directory,
    )


def open_preparer(settings: IngestSettings, opened: ExitStack) -> Preparer:
    """Makes the preparer of documents, with the models of the settings. `opened` will close its connections.

    Raises `SettingsError` if a model cannot be opened.
    """
    own = _cached(settings, settings, opened)
    former = tuple(_cached(model, settings, opened) for model in settings.former)
    prepared = builtin_preparer(open_processor(_chat(settings), builtin_counter(), opened), own)
    return replace(prepared, former=former)


def _cached(model: IngestSettings | FormerSettings, settings: IngestSettings, opened: ExitStack) -> Embedder:
    """Opens a model with its own cache. The caches of former models stay small, because they are used little."""
    try:
        embedder = _embedder(model, opened)
    except EmbeddingFailed as error:
        raise SettingsError(f"ingest.embedder {model.embedder.value}: {error}") from error
    return CachingEmbedder(embedder, MemoryCache(settings.embedding_cache_bytes_max))


def open_readers(settings: IngestSettings, preparer: Preparer, opened: ExitStack) -> Readers:
    """Makes the readers of uploads, in as many processes as the settings say. `opened` will end them."""
    if settings.workers == 0:
        return InProcessReaders(preparer.digester)
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
    return builtin_embedder()


def open_authenticator(settings: Settings, engine: Engine, keys: Keyspace, tokens: Tokens) -> Authenticator:
    """Makes the authenticator. Raises `SettingsError` if the key set of an issuer cannot be used."""
    try:
        issuers = Issuers(settings.auth.oidc)
    except KeyFileError as error:
        raise SettingsError(f"auth.oidc: {error}") from error
    return Authenticator(engine, keys, tokens, issuers)


def tokens_of(settings: Settings) -> Tokens:
    """The tokens of the settings. `add_first_token` adds the first operator's if there are none."""
    return Tokens(_token(token) for token in settings.server.tokens)


def add_first_token(
    tokens: Tokens, settings: Settings, engine: Engine, keys: Keyspace, log: structlog.stdlib.BoundLogger
) -> None:
    """Adds the first operator's token, unless the settings have tokens. It is made unless an operator has an account.

    Call it when nothing else can stop the server from starting: a refused start must not leave a token behind.
    """
    if settings.server.tokens:
        return
    directory = settings.engine.data_dir
    file = directory / operator_token.FILE_NAME
    has_operator = engine.run(lambda tr: accounts.has_operator(tr.snapshot, keys))
    found = operator_token.read(directory)
    if found is None and not has_operator:
        found = operator_token.make(directory)
        log.warning(
            "nobody may call yet: made a token that may do everything, to create the first operator; then remove it",
            file=str(file),
            create=f"drillcore --token-file {file} account create LOGIN --server --name 'NAME' --grant operator",
        )
    elif found is not None and has_operator:
        log.warning("operators have accounts, but the first operator's token is still there: remove it", file=str(file))
    if found is not None:
        tokens.add(found)


def _token(settings: TokenSettings) -> Token:
    tenant = None if settings.tenant_id is None else TenantId(UUID(settings.tenant_id))
    secret = bytes.fromhex(settings.token_sha256) if settings.token_sha256 else digest(settings.token or "")
    return Token(Principal(PrincipalId(settings.name), tenant, grants=_grants(settings.roles, tenant)), secret)


def _grants(roles: Sequence[str], tenant: TenantId | None) -> tuple[Grant, ...]:
    if roles:
        return tuple(Grant(Role(role), tenant) for role in roles)
    return EVERYTHING if tenant is None else (Grant(Role.READER, tenant), Grant(Role.WRITER, tenant))

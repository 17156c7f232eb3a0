"""The server's settings. Each field of `Settings` is a table of the settings file, which is read once, at the start."""

from __future__ import annotations

import enum
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

from drillcore_fdb.embedded import Durability
from drillcore_fdb.format import STORE_PATH
from drillcore_formats.settings import find_file, load, secret
from drillcore_server.audit.settings import AuditSettings
from drillcore_server.communities.settings import CommunitySettings
from drillcore_server.documents.processors.chat import ChatSettings
from drillcore_server.envelopes.settings import EnvelopeSettings
from drillcore_server.facts.importance import ImportanceSettings
from drillcore_server.identity.bearer_tokens import TOKEN_CHARACTERS_MIN
from drillcore_server.identity.settings import AuthSettings
from drillcore_server.kernel.access import SERVER, is_region
from drillcore_server.kernel.account_model import Role
from drillcore_server.kernel.telemetry import LogFormat
from drillcore_server.vectors.embedding.openai_embedder import OpenAISettings
from drillcore_server.vectors.settings import VectorSettings

TABLES_OF_THE_CLIENT: Final = ("client",)
_MIB: Final = 1 << 20
ARCHIVE_AFTER_DAYS_MAX: Final = 36_500
CLUSTER_FILE: Final = "fdb.cluster"
"""Where a server that has joined a cluster keeps the cluster file, in its data directory."""
WORKER_MEMORY_BYTES_MIN: Final = 512 * _MIB
"""The memory of an idle worker, and some room to work in."""


class EngineKind(enum.Enum):
    EMBEDDED = "embedded"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """One caller: `[[server.tokens]]`."""

    name: str
    token: str | None = secret()
    token_sha256: str | None = None
    """The token's SHA-256 in hexadecimal, if you keep no secrets in files. Set this or `token`."""
    tenant_id: str | None = None
    """The tenant that the caller belongs to. Without it the caller is an operator."""
    roles: tuple[str, ...] = ()
    """What the caller may do: reader, writer, reviewer, auditor, operator. By default reader and writer in a tenant,
    and everything without one."""

    def __post_init__(self) -> None:
        if (self.token is None) == (self.token_sha256 is None):
            raise ValueError(f"the token {self.name!r} needs either token or token_sha256")
        if self.token is not None and len(self.token) < TOKEN_CHARACTERS_MIN:
            raise ValueError(f"the token {self.name!r} needs at least {TOKEN_CHARACTERS_MIN} characters")
        if self.token_sha256 is not None and len(bytes.fromhex(self.token_sha256)) != 32:
            raise ValueError(f"token_sha256 of {self.name!r} is not a SHA-256 in hex")
        if self.tenant_id is not None:
            UUID(self.tenant_id)
        if unknown := sorted(set(self.roles) - {role.value for role in Role}):
            known = ", ".join(role.value for role in Role)
            raise ValueError(f"the token {self.name!r} has the role {unknown[0]!r}; the roles are {known}")
        if not self.name or self.name == SERVER.id or _is_uuid(self.name):
            raise ValueError(f"a token cannot be named {self.name!r}: the audit trail would take it for another caller")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    certificate_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    """If set, only clients with a certificate of this authority may connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    listen: str = "127.0.0.1:7600"
    metrics_listen: str = "127.0.0.1:7601"
    """HOST:PORT where Prometheus reads the metrics. Empty: nowhere."""
    workers: int = 32
    """How many calls run at once. More wait."""
    message_bytes_max: int = 16 * _MIB
    upload_bytes_max: int = 256 * _MIB
    """The largest document that AddDocuments and UpdateDocument take, and the largest file of ImportQuads."""
    hierarchy_bytes_max: int = 1024 * _MIB
    """The largest hierarchy that PutHierarchy takes, as it is sent. It is held in memory until it is stored."""
    core_bytes_max: int = 16 * 1024 * _MIB
    """The largest core that ImportCore takes. Uploads wait in temporary files: all together up to twice as much."""
    core_upload_keep_s: float = 3_600.0
    """How long an interrupted upload of a core is kept, so that its caller can continue."""
    timeout_default_s: float = 30.0
    """The time limit of calls whose client set none."""
    timeout_max_s: float = 120.0
    """The longest time limit of a call.

    For an upload it begins with the last request, so that slow uploads are not cut off.
    """
    stream_idle_s: float = 30.0
    """A stream ends if its caller sends no whole message, or takes no answer, for this long: it holds a worker."""
    watchers_max: int = 8
    """How many calls watch events at once. Each holds a worker, so it is never more than half of the workers."""
    shutdown_grace_s: float = 10.0
    """How long calls under way may take to finish when the server stops."""
    request_retention_s: float = 7 * 86_400.0
    """How long the outcome of a write is kept for retries with the same request id."""
    strangers_per_minute: int = 60
    """How many refusals of callers without valid credentials are recorded one by one, for each host and minute.

    Further refusals are only counted.
    """
    regions: tuple[str, ...] = ()
    """The regions whose corpora this server serves and maintains. Empty: all corpora, wherever they are."""
    reason_required: bool = False
    """Whether every call must give a reason (--reason; header drillcore-reason-bin)."""
    reflection: bool = True
    allow_insecure: bool = False
    """Whether to listen without TLS on an address that other machines reach."""
    log_format: LogFormat = LogFormat.JSON
    tls: TlsSettings | None = None
    tokens: tuple[TokenSettings, ...] = ()
    """Who may call. If there is none, the server makes an operator's token in the data directory."""

    def __post_init__(self) -> None:
        for name in (
            "workers",
            "message_bytes_max",
            "upload_bytes_max",
            "hierarchy_bytes_max",
            "core_bytes_max",
            "core_upload_keep_s",
            "timeout_default_s",
            "timeout_max_s",
            "stream_idle_s",
            "watchers_max",
            "request_retention_s",
            "strangers_per_minute",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
        if wrong := [region for region in self.regions if not is_region(region)]:
            raise ValueError(f"regions has {wrong[0]!r}, which is not a region such as eu-west-1")
        for name in ("listen", "metrics_listen"):
            if getattr(self, name):
                split_address(getattr(self, name), name)
        self._check_names()
        if not self.allow_insecure and self.tls is None and not is_loopback(split_address(self.listen, "listen")[0]):
            raise ValueError(
                f"listen is {self.listen}, which other machines reach, but there is no [server.tls]; "
                "set that up, or allow_insecure = true if something else encrypts"
            )

    def _check_names(self) -> None:
        """A name must be one caller in one tenant, because outcomes of requests are stored under it.

        It may have several tokens.
        """
        callers: dict[str, tuple[str | None, frozenset[str]]] = {}
        for token in self.tokens:
            caller = token.tenant_id, frozenset(token.roles)
            if callers.setdefault(token.name, caller) != caller:
                message = f"the name {token.name!r} has tokens for different tenants or roles: give each its own name"
                raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTable:
    """`[engine.cluster]`: how to reach FoundationDB."""

    cluster_file: Path | None = None
    """By default fdb.cluster in the data directory if a server joined with it, else where FoundationDB looks for it."""
    directory: str = STORE_PATH[0]
    """The directory of the cluster that holds the store. The keyring is in a second one, DIRECTORY-keyring.

    Installations that share a cluster need different ones.
    """
    tls_certificate_file: Path | None = None
    tls_key_file: Path | None = None
    tls_ca_file: Path | None = None
    tls_verify_peers: str | None = None
    tls_password: str | None = secret()
    connect_timeout_s: float = 10.0
    knobs: Mapping[str, str] = field(default_factory=dict)
    trace_directory: Path | None = None
    external_client_directory: Path | None = None

    def __post_init__(self) -> None:
        if not self.directory:
            raise ValueError("directory must not be empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    kind: EngineKind = EngineKind.EMBEDDED
    data_dir: Path = Path("drillcore-data")
    """Holds the embedded engine's store and, with either engine, the operator's token and the server's own files."""
    secret_dir: Path | None = None
    """A directory with the keys of the store: `master.key`, and the audit trail's `1.key`, `2.key` and so on.

    For a secret that is mounted into every server of a cluster. Without it, each server has the keys in its data
    directory, and `drillcore cluster invite` takes them from one to the next.
    """
    master_key_file: Path | None = None
    """The keyring's master key, by default master.key in `secret_dir`, or keyring/master.key in the data directory."""
    durability: Durability = Durability.FULL
    map_size_bytes: int = 1 << 40
    """The largest size of the embedded store. It reserves address space, not memory or disk."""
    timeout_s: float = 30.0
    """The time limit of one transaction with all its retries, if the call sets none."""
    cluster: ClusterTable = field(default_factory=ClusterTable)

    @property
    def master_key_path(self) -> Path:
        default = self.data_dir / "keyring" if self.secret_dir is None else self.secret_dir
        return self.master_key_file or default / "master.key"

    @property
    def cluster_file(self) -> Path | None:
        """The cluster file of the settings, or the one that joining has kept. None: where FoundationDB looks for it."""
        kept = self.data_dir / CLUSTER_FILE
        return self.cluster.cluster_file or (kept if kept.exists() else None)

    @property
    def store_path(self) -> tuple[str, ...]:
        """The directory of the engine that holds the store."""
        return (self.cluster.directory,) if self.kind is EngineKind.CLUSTER else STORE_PATH

    @property
    def keyring_path(self) -> tuple[str, ...]:
        """Apart from the store's directory, so that a backup of the store does not hold the keys."""
        return (f"{self.store_path[0]}-keyring",)

    def __post_init__(self) -> None:
        if self.map_size_bytes < _MIB:
            raise ValueError("map_size_bytes must be at least a mebibyte")
        if self.timeout_s <= 0:
            raise ValueError("timeout_s must be more than 0")


class ProcessorKind(enum.Enum):
    """EXTRACTIVE: built in, offline, the same input gives the same output. OPENAI: a model behind an HTTP server."""

    EXTRACTIVE = "extractive"
    OPENAI = "openai"


class EmbedderKind(enum.Enum):
    """STATIC: built in, fast. MINILM: better, needs the extra `minilm`. ONNX: a folder of yours. OPENAI: over HTTP."""

    STATIC = "static"
    MINILM = "minilm"
    ONNX = "onnx"
    OPENAI = "openai"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerSettings:
    """`[[ingest.former]]`: an embedding model that the server's own has replaced. Its fields are as in `[ingest]`."""

    embedder: EmbedderKind
    onnx_folder: Path | None = None
    embeddings: OpenAISettings | None = None

    def __post_init__(self) -> None:
        _check_embedder(self.embedder, self.onnx_folder, self.embeddings, "ingest.former")


def _check_embedder(kind: EmbedderKind, folder: Path | None, remote: OpenAISettings | None, table: str) -> None:
    if kind is EmbedderKind.OPENAI and remote is None:
        raise ValueError(f"the embedder openai needs [{table}.embeddings]")
    if kind is EmbedderKind.ONNX and folder is None:
        raise ValueError("the embedder onnx needs onnx_folder")


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """`[ingest]`: the models that make summaries, entities and embeddings."""

    processor: ProcessorKind = ProcessorKind.EXTRACTIVE
    embedder: EmbedderKind = EmbedderKind.STATIC
    onnx_folder: Path | None = None
    """The folder with model.onnx and tokenizer.json, for the embedder `onnx`."""
    embedding_cache_bytes_max: int = 64 * _MIB
    """Memory that caches vectors of texts seen before."""
    workers: int = field(default_factory=_usable_cpus)
    """How many processes parse and digest documents, by default one for each usable CPU. 0: the server does it in its
    own process, without isolation. Then a document that crashes a parser ends the server, and the two limits below do
    not hold."""
    document_timeout_s: float = 120.0
    """The time limit for parsing and digesting one document. A worker that takes longer is ended, and the document
    fails. With the processor `openai` a long document asks the model many times: allow more."""
    worker_memory_bytes_max: int = 2 << 30
    """The address space of one worker. A document that needs more fails."""
    chat: ChatSettings | None = None
    """`[ingest.chat]`, for the processor `openai`."""
    embeddings: OpenAISettings | None = None
    """`[ingest.embeddings]`, for the embedder `openai`."""
    former: tuple[FormerSettings, ...] = ()
    """Models of corpora that have not moved to the server's own model yet. These corpora work as before."""

    def __post_init__(self) -> None:
        if self.processor is ProcessorKind.OPENAI and self.chat is None:
            raise ValueError("the processor openai needs [ingest.chat]")
        _check_embedder(self.embedder, self.onnx_folder, self.embeddings, "ingest")
        if self.workers < 0:
            raise ValueError("workers must be 0 or more")
        if self.document_timeout_s <= 0:
            raise ValueError("document_timeout_s must be more than 0")
        if self.worker_memory_bytes_max < WORKER_MEMORY_BYTES_MIN:
            raise ValueError(f"worker_memory_bytes_max must be at least {WORKER_MEMORY_BYTES_MIN}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSettings:
    """`[facts]`: what happens to facts over time."""

    sweep_every_s: float = 60.0
    """How often the server looks for facts that have expired."""
    archive_after_days: int = 180
    """A fact that nobody has read for this long leaves the search index. 0: facts never leave it."""
    importance: ImportanceSettings = field(default_factory=ImportanceSettings)
    """`[facts.importance]`: the weight of facts, by source."""
    session_idle_s: float = 1_800.0
    """Facts that exist only in a session (no-store) are forgotten when it was not used for this long."""
    session_facts_max: int = 1_000
    """The most facts in one session."""

    def __post_init__(self) -> None:
        for name in ("sweep_every_s", "session_idle_s", "session_facts_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
        if not 0 <= self.archive_after_days <= ARCHIVE_AFTER_DAYS_MAX:
            raise ValueError(f"archive_after_days must be 0 to {ARCHIVE_AFTER_DAYS_MAX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureSettings:
    """`[erasure]`: what happens to erased sources."""

    purge_days: int = 30
    """The days from an erasure, after which nobody can read the source, until its remaining bytes are removed."""

    def __post_init__(self) -> None:
        if self.purge_days < 0:
            raise ValueError("purge_days must be 0 or more")


@dataclass(frozen=True, slots=True)
class Settings:
    server: ServerSettings = field(default_factory=ServerSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    facts: FactSettings = field(default_factory=FactSettings)
    vectors: VectorSettings = field(default_factory=VectorSettings)
    communities: CommunitySettings = field(default_factory=CommunitySettings)
    erasure: ErasureSettings = field(default_factory=ErasureSettings)
    envelopes: EnvelopeSettings = field(default_factory=EnvelopeSettings)

    @property
    def audit_key_dir(self) -> Path:
        """Where the keys that sign the audit trail are, unless a program holds them."""
        return self.audit.key_dir or self.engine.secret_dir or self.engine.data_dir / "audit" / "keys"


def load_settings(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """The settings from the file, then the environment, then `overrides` by dotted name. The last wins.

    Raises SettingsError.
    """
    environment = os.environ if environment is None else environment
    return load(
        Settings,
        file=find_file(file, environment),
        environment=environment,
        overrides=overrides or {},
        known_elsewhere=TABLES_OF_THE_CLIENT,
    )


def _is_uuid(text: str) -> bool:
    try:
        return bool(UUID(text))
    except ValueError:
        return False


def split_address(address: str, name: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{name} must be HOST:PORT, not {address!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

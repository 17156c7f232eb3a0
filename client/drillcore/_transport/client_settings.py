"""How to reach a server: the `[client]` table of the settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from drillcore_formats.settings import Loaded, SettingsError, Source, find_file, load_with_sources, secret

DEFAULT_ADDRESS: Final = "127.0.0.1:7600"
ATTEMPTS_MAX: Final = 5
"""The most attempts that gRPC makes, whatever its options say."""
TABLES_OF_THE_SERVER: Final = (
    "server",
    "engine",
    "ingest",
    "auth",
    "audit",
    "facts",
    "vectors",
    "communities",
    "envelopes",
    "erasure",
)
"""Tables and environment variables of the server, which the client ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """How to encrypt the connection. A certificate with its key also identifies the caller."""

    enabled: bool = True
    ca_file: Path | None = None
    """The authorities to trust. None: those that gRPC trusts by default."""
    certificate_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host of the address."""

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("set both certificate_file and key_file, or neither")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a client reaches its server."""

    address: str = DEFAULT_ADDRESS
    token: str | None = secret()
    token_file: Path | None = None
    """A file with only the token. The server writes one for operators to its data directory."""
    tenant_id: str | None = None
    """The tenant to act in, unless a call names one. Only operators need it: other tokens belong to a tenant."""
    timeout_s: float = 30.0
    """The time for a whole call, including retries."""
    attempts: int = ATTEMPTS_MAX
    """How often to try a call if the server does not answer. 1 means no retry."""
    allow_insecure: bool = False
    """Whether a token may travel unencrypted to another machine."""
    reason: str | None = None
    """Why you make these calls. The reason is part of the audit record of each call."""
    residency: str | None = None
    """A region, such as eu-west-1. Calls can read and change only corpora in it."""
    tls: TLS | None = None

    def __post_init__(self) -> None:
        if not self.address:
            raise ValueError("address must not be empty")
        if self.token is not None and not _can_be_sent(self.token):
            raise ValueError("token must be printable ASCII without spaces and not empty")
        if self.residency is not None and not _can_be_sent(self.residency):
            raise ValueError("residency must be the name of a region, such as eu-west-1")
        if self.timeout_s <= 0:
            raise ValueError("timeout_s must be more than 0")
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise ValueError(f"attempts must be 1 to {ATTEMPTS_MAX}")

    def bearer_token(self) -> str | None:
        """The token, from its file if necessary. Raises SettingsError if the file has no usable token."""
        if self.token is not None or self.token_file is None:
            return self.token
        try:
            token = self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"the token file cannot be read: {error}") from error
        if not token:
            raise SettingsError(f"the token file {self.token_file} is empty")
        if not _can_be_sent(token):
            raise SettingsError(f"the token file {self.token_file} must hold only the token")
        return token


def _can_be_sent(token: str) -> bool:
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


@dataclass(frozen=True, slots=True)
class _Root:
    client: ClientSettings = field(default_factory=ClientSettings)


def load_client_settings(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Loaded[ClientSettings]:
    """The client's settings and where each came from. `overrides` maps names of fields to values; None is ignored.

    Without `file`, `settings.find_file` looks in the usual places. Raises SettingsError.
    """
    environment = os.environ if environment is None else environment
    loaded = load_with_sources(
        _Root,
        file=find_file(file, environment),
        environment=environment,
        overrides={f"client.{name}": value for name, value in (overrides or {}).items()},
        known_elsewhere=TABLES_OF_THE_SERVER,
    )
    sources = {name.removeprefix("client."): source for name, source in loaded.sources.items()}
    return Loaded(_with_strongest_token(loaded.settings.client, sources), sources)


def _with_strongest_token(settings: ClientSettings, sources: Mapping[str, Source]) -> ClientSettings:
    """Keeps either the token or the token file: the one from the stronger source."""
    if settings.token is None or settings.token_file is None:
        return settings
    token, token_file = sources["token"], sources["token_file"]
    if token.origin == token_file.origin:
        raise SettingsError(f"both token ({token.place}) and token_file ({token_file.place}) are set: keep one of them")
    if token.origin > token_file.origin:
        return replace(settings, token_file=None)
    return replace(settings, token=None)

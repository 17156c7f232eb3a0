"""How calls travel: channel options, credentials and metadata, the same for both clients."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import grpc
from google.protobuf.message import Message

from drillcore._transport.client_settings import TLS, ClientSettings
from drillcore._version import api_version
from drillcore_formats.settings import SettingsError
from drillcore_proto.reasons import API_VERSION_HEADER, REASON_HEADER, REQUEST_ID_HEADER, RESIDENCY_HEADER

MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest answer that is accepted, and the largest request that gRPC keeps for a retry."""
FIRST_BACKOFF_S: Final = 0.2
BACKOFF_MAX_S: Final = 2.0
CONNECT_S: Final = 20.0
_TARGET: Final = re.compile(r"(?:dns:(?://[^/]*/)?|ipv4:|ipv6:)?(?P<host>\[[^\]]*\]|[^:]*)(?::\w+)?")
_PASSWORDS: Final = ("password", "old_password", "new_password")
"""Fields of requests that hold a password."""
Options = Sequence[tuple[str, str | int]]


def options(settings: ClientSettings) -> Options:
    """Channel options. They let gRPC retry calls with backoff and jitter, within the deadline of the call.

    It retries UNAVAILABLE, and CANCELLED, with which a stopping server ends running calls. It does not retry a call
    that the caller cancelled. Every attempt has the same metadata, so that the server recognizes a repeated write by
    its request id.
    """
    found: list[tuple[str, str | int]] = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.per_rpc_retry_buffer_size", MESSAGE_BYTES_MAX),
        # A channel waits this long before it reconnects. With gRPC's default of 1 s, retries would come too early.
        ("grpc.initial_reconnect_backoff_ms", int(FIRST_BACKOFF_S * 1000)),
        # Its name misleads: it is how long an attempt to connect may take, to a server far away or with much to do.
        ("grpc.min_reconnect_backoff_ms", int(CONNECT_S * 1000)),
        ("grpc.max_reconnect_backoff_ms", int(BACKOFF_MAX_S * 1000)),
        ("grpc.enable_retries", int(settings.attempts > 1)),
    ]
    if settings.attempts > 1:
        found.append(("grpc.service_config", json.dumps(_retry_config(settings.attempts))))
    if is_local(settings.address):
        # A proxy cannot reach the loopback address of this machine, and must not see the token.
        found.append(("grpc.enable_http_proxy", 0))
    if settings.tls is not None and settings.tls.server_name:
        found.append(("grpc.ssl_target_name_override", settings.tls.server_name))
    return found


def _retry_config(attempts: int) -> object:
    policy = {
        "maxAttempts": attempts,
        "initialBackoff": f"{FIRST_BACKOFF_S}s",
        "maxBackoff": f"{BACKOFF_MAX_S}s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
    }
    return {"methodConfig": [{"name": [{}], "retryPolicy": policy}]}


def credentials(settings: ClientSettings) -> grpc.ChannelCredentials | None:
    """The credentials for an encrypted channel, None for an unencrypted one.

    Raises SettingsError if the token would leave this machine unencrypted, or if a file cannot be read.
    """
    if settings.tls is not None and settings.tls.enabled:
        return _tls_credentials(settings.tls)
    if settings.bearer_token() and not settings.allow_insecure and not is_local(settings.address):
        raise SettingsError(
            f"the token would travel unencrypted to {settings.address}: "
            "set up TLS ([client.tls]), or set allow_insecure if you trust the network in between"
        )
    return None


def check_secrets(settings: ClientSettings, encryption: grpc.ChannelCredentials | None, request: Message) -> None:
    """Raises SettingsError if the request holds a password and would leave this machine unencrypted."""
    if encryption is not None or settings.allow_insecure or is_local(settings.address):
        return
    if any(getattr(request, name, "") for name in _PASSWORDS):
        raise SettingsError(
            f"the password would travel unencrypted to {settings.address}: "
            "set up TLS ([client.tls]), or set allow_insecure if you trust the network in between"
        )


def open_channel(settings: ClientSettings, encryption: grpc.ChannelCredentials | None) -> grpc.Channel:
    """A channel for blocking calls. It connects with the first call."""
    if encryption is None:
        return grpc.insecure_channel(settings.address, options(settings))
    return grpc.secure_channel(settings.address, encryption, options(settings))


def open_upload_channel(settings: ClientSettings, encryption: grpc.ChannelCredentials | None) -> grpc.Channel:
    """A channel whose calls are never retried: gRPC would have to hold everything it sent in memory."""
    return open_channel(replace(settings, attempts=1), encryption)


def _tls_credentials(tls: TLS) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=_read(tls.ca_file, "tls.ca_file"),
        private_key=_read(tls.key_file, "tls.key_file"),
        certificate_chain=_read(tls.certificate_file, "tls.certificate_file"),
    )


def _read(file: Path | None, setting: str) -> bytes | None:
    try:
        return file.read_bytes() if file else None
    except OSError as error:
        raise SettingsError(f"{setting} cannot be read: {error}") from error


def is_local(address: str) -> bool:
    """Whether data sent to this address, or to any of several, stays on this machine."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    scheme, several, addresses = address.partition("ipv4:")
    if several and not scheme:
        return all(map(_is_loopback, addresses.split(",")))
    return _is_loopback(address)


def _is_loopback(address: str) -> bool:
    match = _TARGET.fullmatch(address)
    host = match["host"].strip("[]") if match else ""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_request_id(request_id: str) -> str:
    """The request id, unchanged. Raises ValueError if it cannot be sent."""
    if not request_id or not request_id.isascii() or not request_id.isprintable():
        raise ValueError("a request id must be printable ASCII and not empty")
    return request_id


def metadata(
    token: str | None, request_id: str, reason: str | None = None, residency: str | None = None
) -> Sequence[tuple[str, str | bytes]]:
    """The metadata of every call."""
    pairs: list[tuple[str, str | bytes]] = [(REQUEST_ID_HEADER, request_id), (API_VERSION_HEADER, api_version())]
    if token:
        pairs.append(("authorization", f"Bearer {token}"))
    if reason:
        pairs.append((REASON_HEADER, reason.encode()))
    if residency:
        pairs.append((RESIDENCY_HEADER, residency))
    return pairs

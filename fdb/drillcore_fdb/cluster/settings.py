"""The settings of a cluster engine: how to reach the cluster, and time limits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drillcore_fdb.cluster.binding import NetworkOptions
from drillcore_fdb.engine import TRANSACTION_BYTES_MAX
from drillcore_fdb.errors import InvalidUseError

TIMEOUT_S_MAX = (2**31 - 1) // 1000
"""FoundationDB keeps a timeout as a 32-bit number of milliseconds."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of a `ClusterEngine`. Raises `InvalidUseError`, naming the setting, for a value that cannot work.

    The TLS, knob, trace and client library settings hold for the whole process: engines opened in one process
    must agree on them.
    """

    cluster_file: Path | None = None
    """None: FDB_CLUSTER_FILE, else fdb.cluster in the working directory, else the system's default place."""

    tls_certificate_path: Path | None = None
    tls_key_path: Path | None = None
    tls_ca_path: Path | None = None
    tls_verify_peers: str | None = None
    """FoundationDB's peer verification pattern, for example `Check.Valid=1,I.O=Example`."""
    tls_password: str | None = field(default=None, repr=False)

    timeout_s: float = 30.0
    """The timeout of one `Engine.run` with all its retries, if its options have none."""
    connect_timeout_s: float = 10.0
    """How long `ClusterEngine.open` waits for the cluster's first answer."""
    max_retry_delay_s: float = 1.0
    transaction_bytes_max: int = TRANSACTION_BYTES_MAX
    max_watches: int = 10_000
    """The most watches that have not fired yet, over all engines of this process with the same cluster file."""

    knobs: Mapping[str, str] = field(default_factory=dict)
    trace_directory: Path | None = None
    external_client_directory: Path | None = None
    """A directory of further libfdb_c libraries, so that a process keeps running when the cluster is upgraded."""

    def __post_init__(self) -> None:
        self._require(0 < self.timeout_s <= TIMEOUT_S_MAX, "timeout_s", f"above 0, at most {TIMEOUT_S_MAX}")
        self._require(
            0 < self.connect_timeout_s <= TIMEOUT_S_MAX, "connect_timeout_s", f"above 0, at most {TIMEOUT_S_MAX}"
        )
        self._require(0 <= self.max_retry_delay_s <= TIMEOUT_S_MAX, "max_retry_delay_s", f"from 0 to {TIMEOUT_S_MAX}")
        self._require(
            32 <= self.transaction_bytes_max <= TRANSACTION_BYTES_MAX,
            "transaction_bytes_max",
            f"from 32 to {TRANSACTION_BYTES_MAX}",
        )
        self._require(0 <= self.max_watches <= 1_000_000, "max_watches", "from 0 to 1000000")
        for name in self.knobs:
            if not name or "=" in name:
                raise InvalidUseError(2006, f"{name!r} is not the name of a knob")
        if (self.tls_certificate_path is None) != (self.tls_key_path is None):
            # FoundationDB would look for the other one in its default place and find the wrong one or none.
            raise InvalidUseError(2006, "tls_certificate_path and tls_key_path go together: set both or neither")

    def _require(self, holds: bool, name: str, bounds: str) -> None:
        if not holds:
            raise InvalidUseError(2006, f"{name} is {getattr(self, name)!r}, it must be {bounds}")

    def check_paths(self) -> None:
        """Raises `InvalidUseError` for a file or directory that is named but cannot be used.

        FoundationDB would report it only in its trace log, and then fail to connect.
        """
        for name in ("tls_certificate_path", "tls_key_path", "tls_ca_path"):
            path: Path | None = getattr(self, name)
            if path is not None and not (path.is_file() and os.access(path, os.R_OK)):
                raise InvalidUseError(2006, f"{name}: {path} is not a file that can be read")
        for name in ("trace_directory", "external_client_directory"):
            path = getattr(self, name)
            if path is not None and not path.is_dir():
                raise InvalidUseError(2006, f"{name}: {path} is not a directory")

    def network_options(self) -> NetworkOptions:
        return tuple(self._network_options())

    def _network_options(self) -> Iterator[tuple[str, str | bytes]]:
        if self.tls_password is not None:
            # Before the key, or FoundationDB does not use it to read the key.
            yield "tls_password", self.tls_password
        if self.tls_certificate_path is not None:
            yield "tls_cert_path", str(self.tls_certificate_path.absolute())
        if self.tls_key_path is not None:
            yield "tls_key_path", str(self.tls_key_path.absolute())
        if self.tls_ca_path is not None:
            yield "tls_ca_path", str(self.tls_ca_path.absolute())
        if self.tls_verify_peers is not None:
            yield "tls_verify_peers", self.tls_verify_peers.encode()
        for name, value in sorted(self.knobs.items()):
            yield "knob", f"{name}={value}"
        if self.trace_directory is not None:
            yield "trace_enable", str(self.trace_directory.absolute())
        if self.external_client_directory is not None:
            yield "external_client_directory", str(self.external_client_directory.absolute())

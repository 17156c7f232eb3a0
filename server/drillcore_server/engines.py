"""Opens the engine that the settings ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from drillcore_fdb.cluster import ClusterEngine, ClusterSettings
from drillcore_fdb.embedded import EmbeddedEngine, EmbeddedSettings, RewritableEngine
from drillcore_fdb.engine import Engine
from drillcore_server.config import EngineKind, EngineSettings
from drillcore_server.store.keyring import Keyring

_KEYRING_PATH: Final = ("drillcore-keyring",)


def open_engine(settings: EngineSettings) -> Engine:
    """Raises `UnavailableError`, saying why and what to do, if there is no store to be had."""
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
    """The keyring of a store, which is a store of its own: beside the embedded one, or elsewhere on the cluster."""
    master_key_file = settings.master_key_file or settings.data_dir / "keyring" / "master.key"
    if settings.kind is EngineKind.CLUSTER:
        yield Keyring.open(engine, engine.directory(*_KEYRING_PATH), master_key_file)
        return
    own = RewritableEngine(replace(embedded_settings(settings), path=settings.data_dir / "keyring"))
    try:
        yield Keyring.open(own, own.directory(*_KEYRING_PATH), master_key_file, own.rewrite)
    finally:
        own.close()


def _cluster(settings: EngineSettings) -> ClusterSettings:
    cluster = settings.cluster
    return ClusterSettings(
        cluster_file=cluster.cluster_file,
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

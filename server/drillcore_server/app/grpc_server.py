"""Serves the RPCs over gRPC, with health checks and reflection."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from drillcore_formats.settings import SettingsError
from drillcore_server.app.config import ServerSettings, TlsSettings
from drillcore_server.transport.pipeline import Pipeline, UnknownMethods

Service = tuple[ServiceDescriptor, object]
"""An RPC service of the protocol and the object that implements it."""

_LAST_ANSWERS_S: Final = 0.5
"""Time to send the last answers. gRPC itself would also wait for clients that only watch the health service."""


class GrpcServer:
    def __init__(
        self,
        settings: ServerSettings,
        services: Sequence[Service],
        pipeline: Pipeline,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._settings = settings
        self._names = [service.full_name for service, _ in services]
        self._health = health.HealthServicer()
        self._grpc = _server(settings)
        self._grpc.add_generic_rpc_handlers(tuple(pipeline.bind(*service) for service in services))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        if settings.reflection:
            names = (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._grpc)
        self._grpc.add_generic_rpc_handlers((UnknownMethods(log),))

    def listen(self) -> int:
        """Opens the port of the settings and returns its number. Raises `SettingsError` if it cannot listen there."""
        try:
            if self._settings.tls is None:
                return self._grpc.add_insecure_port(self._settings.listen)
            return self._grpc.add_secure_port(self._settings.listen, _credentials(self._settings.tls))
        except (RuntimeError, OSError) as error:
            raise SettingsError(f"server.listen {self._settings.listen}: cannot listen there: {error}") from error

    def start(self) -> None:
        self._grpc.start()
        self.set_serving(True)

    def set_serving(self, is_serving: bool) -> None:
        """Sets the health of the server and of all its services."""
        for name in ("", *self._names):
            self.set_health(name, is_serving)

    def set_health(self, name: str, is_serving: bool) -> None:
        """Sets the answer to health checks of this name."""
        status = health_pb2.HealthCheckResponse
        self._health.set(name, status.SERVING if is_serving else status.NOT_SERVING)

    def refuse_new_calls(self) -> None:
        self._health.enter_graceful_shutdown()

    def stop(self) -> None:
        """Ends the connections, once the calls under way have been answered."""
        self._grpc.stop(min(_LAST_ANSWERS_S, self._settings.shutdown_grace_s)).wait()


def _server(settings: ServerSettings) -> grpc.Server:
    return grpc.server(
        ThreadPoolExecutor(settings.workers, thread_name_prefix="drillcore-rpc"),
        options=[
            ("grpc.max_receive_message_length", settings.message_bytes_max),
            ("grpc.max_send_message_length", settings.message_bytes_max),
            ("grpc.so_reuseport", 0),
        ],
    )


def _credentials(tls: TlsSettings) -> grpc.ServerCredentials:
    client_ca = tls.client_ca_file.read_bytes() if tls.client_ca_file else None
    pair = (tls.key_file.read_bytes(), tls.certificate_file.read_bytes())
    return grpc.ssl_server_credentials([pair], client_ca, require_client_auth=client_ca is not None)

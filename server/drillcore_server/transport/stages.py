"""The stages of every call before its handler, in order: request id, log, metrics, admission, authentication."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol

import structlog
from google.protobuf.message import Message

from drillcore_fdb.errors import EngineError
from drillcore_fdb.round_trips import counted
from drillcore_proto.reasons import API_VERSION, API_VERSION_HEADER, REQUEST_ID_HEADER, RESIDENCY_HEADER, Reason
from drillcore_server.identity.authenticator import Authenticator
from drillcore_server.kernel.access import NOBODY, Principal, checked_region
from drillcore_server.kernel.errors import BadInput, NotReady, Refused, Unavailable
from drillcore_server.kernel.telemetry import Metrics, error_fields
from drillcore_server.kernel.unit import errors_as_refusals
from drillcore_server.transport.exchange import Answer, Exchange, abort, reply_metadata
from drillcore_server.vectors.embedding.embedders import ProviderFailed

REQUEST_ID_CHARACTERS_MAX = 128
API_VERSION_CHARACTERS_MAX = 16
OPEN_TO_NOBODY: Final = frozenset({"Login"})
"""The calls for callers who are not authenticated yet. Credentials that they send are ignored there."""


class Stage(Protocol):
    def __call__(self, exchange: Exchange, proceed: Answer) -> Message | None: ...


class RequestIds:
    """The outermost stage: gives the call its id, and turns every failure inside into a refusal with that id."""

    def __call__(self, exchange: Exchange, proceed: Answer) -> Message | None:
        try:
            response = proceed(exchange)
        except Refused as refused:
            abort(exchange.context, refused, exchange.request_id)
        exchange.context.set_trailing_metadata(reply_metadata(exchange.request_id))
        return response


def is_request_id(given: str) -> bool:
    return 0 < len(given) <= REQUEST_ID_CHARACTERS_MAX and given.isascii() and given.isprintable()


class Log:
    """Logs one line for each call: who, what, how long, and how it ended. Never its content."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log

    def __call__(self, exchange: Exchange, proceed: Answer) -> Message | None:
        started = time.perf_counter()
        try:
            response = proceed(exchange)
        except Refused as refused:
            self._write(exchange, started, refused.reason.name)
            if isinstance(refused.__cause__, EngineError) and isinstance(refused, Unavailable):
                cause = refused.__cause__
                self._log.warning("store", request_id=exchange.request_id, error=cause.message, code=cause.code)
            if isinstance(refused.__cause__, ProviderFailed):
                self._log.warning("model", request_id=exchange.request_id, error=str(refused.__cause__))
            raise
        except Exception as error:
            self._write(exchange, started, Reason.INTERNAL.name)
            self._log.error("defect", request_id=exchange.request_id, **error_fields(error))
            raise Unavailable(Reason.INTERNAL, "a defect of the server; its log has the details") from error
        self._write(exchange, started, "OK")
        return response

    def _write(self, exchange: Exchange, started: float, outcome: str) -> None:
        self._log.info(
            "call",
            method=exchange.method,
            request_id=exchange.request_id,
            principal=exchange.principal.id if exchange.principal else None,
            outcome=outcome,
            ms=round((time.perf_counter() - started) * 1e3, 3),
        )


class Measure:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def __call__(self, exchange: Exchange, proceed: Answer) -> Message | None:
        started = time.perf_counter()
        outcome = Reason.INTERNAL.name
        with counted() as trips:
            try:
                response = proceed(exchange)
                outcome = "OK"
            except Refused as refused:
                outcome = refused.reason.name
                raise
            finally:
                self._metrics.observe_call(exchange.method, outcome, time.perf_counter() - started, trips)
        return response


class Admit:
    """Admits calls until the server stops, and knows when the last one has ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = True
        self.store_is_sound = True
        """While this is False, every call is refused: a store without one of its directories gives wrong answers."""
        self._under_way = 0

    def __call__(self, exchange: Exchange, proceed: Answer) -> Message | None:
        with self._changed:
            if not self._open:
                raise Unavailable(Reason.SHUTTING_DOWN, "the server is stopping; nothing was written")
            if not self.store_is_sound:
                raise Unavailable(Reason.STORE_UNAVAILABLE, "the store cannot be used now; the server's log says why")
            self._under_way += 1
        try:
            return proceed(exchange)
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Admits no further calls, and waits for those under way."""
        with self._changed:
            self._open = False
            self._changed.wait_for(lambda: not self._under_way, timeout_s)


class Authenticate:
    """The innermost stage: finds out who is calling, and whether both sides speak the same protocol."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def __call__(self, exchange: Exchange, proceed: Answer) -> Message | None:
        exchange.principal = NOBODY if exchange.method in OPEN_TO_NOBODY else self._caller(exchange)
        _check_request_id(exchange.metadata.get(REQUEST_ID_HEADER))
        _check_api_version(exchange.metadata.get(API_VERSION_HEADER))
        if exchange.region:
            checked_region(exchange.region, RESIDENCY_HEADER)
        return proceed(exchange)

    def _caller(self, exchange: Exchange) -> Principal:
        # gRPC asks for a client's certificate, and shows it here, only if the settings name an authority for them.
        shown: Sequence[bytes] = exchange.context.auth_context().get("x509_pem_cert", ())  # type: ignore[assignment]
        certificate = shown[0] if shown else None
        with errors_as_refusals():
            return self._authenticator.authenticate(exchange.metadata.get("authorization"), certificate, exchange.at)


def _check_request_id(given: str | None) -> None:
    """Raises `BadInput` for a bad request id. Checked in a stage, so that the refusal is logged and counted."""
    if given is not None and not is_request_id(given):
        message = f"a request id (--request-id) is 1 to {REQUEST_ID_CHARACTERS_MAX} printable ASCII characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field=REQUEST_ID_HEADER)


def _check_api_version(given: str | None) -> None:
    """Refuses a client of another major version. A later minor version is served; only its new fields are refused."""
    if given is None:
        return
    major, _, minor = given.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and len(given) <= API_VERSION_CHARACTERS_MAX):
        raise BadInput(Reason.INVALID_ARGUMENT, f"{API_VERSION_HEADER} must be MAJOR.MINOR", field=API_VERSION_HEADER)
    spoken = f"this server speaks protocol {API_VERSION[0]}.{API_VERSION[1]}, the client {given}"
    if int(major) < API_VERSION[0]:
        raise NotReady(Reason.CLIENT_TOO_OLD, f"{spoken}; upgrade the client")
    if int(major) > API_VERSION[0]:
        raise NotReady(Reason.CLIENT_TOO_NEW, f"{spoken}; upgrade the server or use an older client")

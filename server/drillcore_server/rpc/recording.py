"""Records the calls that are refused: those that were not even authenticated, and those that failed, too.

A call that is answered has its record in the transaction that answered it. One that is refused has changed nothing, and
is recorded here, in a transaction of its own.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import structlog
from google.protobuf.message import Message

from drillcore_proto.reasons import REASON_HEADER, Reason
from drillcore_server.auth.principal import NOBODY
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.errors import BadInput, Refused, Unavailable
from drillcore_server.rpc.exchange import Answer, Exchange

REASON_CHARACTERS_MAX: Final = 2_000
_HOSTS_MAX: Final = 10_000


class Record:
    def __init__(
        self,
        unit: Unit,
        log: structlog.stdlib.BoundLogger,
        *,
        reason_required: bool = False,
        strangers_per_minute: int = 60,
    ) -> None:
        self._unit = unit
        self._log = log
        self._reason_required = reason_required
        self._strangers = Strangers(strangers_per_minute)

    def __call__(self, exchange: Exchange, proceed: Answer) -> Message | None:
        try:
            self._check_reason(exchange)
            return proceed(exchange)
        except Refused as refused:
            self._record(exchange, refused)
            raise
        except Exception:
            self._record(exchange, Unavailable(Reason.INTERNAL, "a defect of the server"))
            raise

    def _check_reason(self, exchange: Exchange) -> None:
        if exchange.reason is None or len(exchange.reason) > REASON_CHARACTERS_MAX:
            message = f"{REASON_HEADER} must be UTF-8 of at most {REASON_CHARACTERS_MAX} characters"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field=REASON_HEADER)
        if self._reason_required and not exchange.reason.strip():
            raise BadInput(Reason.REASON_REQUIRED, "say why this call is made", field=REASON_HEADER)

    def _record(self, exchange: Exchange, refused: Refused) -> None:
        call = exchange.call or Call(
            exchange.method,
            exchange.request_id,
            exchange.principal or NOBODY,
            exchange.at,
            exchange.timeout_s,
            b"",
            client=exchange.client,
        )
        suppressed = 0
        if call.principal is NOBODY:
            counted = self._strangers.admit(exchange.client.host)
            if counted is None:
                return
            suppressed = counted
        try:
            self._unit.record_refusal(call, refused, suppressed)
        except Refused as failed:
            # The call fails anyway, and the store that cannot take the record has nothing else of it.
            self._log.error("refusal not recorded", request_id=call.request_id, reason=failed.reason.name)


@dataclass(slots=True)
class _Host:
    since: float
    recorded: int = 0
    suppressed: int = 0


class Strangers:
    """How many refusals of unknown callers were recorded for each host within the last minute.

    What is beyond the limit is counted with the next one: somebody who knows no password must not fill the disk.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._lock = threading.Lock()
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    def admit(self, host: str) -> int | None:
        """Whether to record one more: None for no, else how many were left out before it."""
        now = time.monotonic()
        with self._lock:
            known = self._hosts.setdefault(host, _Host(now))
            self._hosts.move_to_end(host)
            if len(self._hosts) > _HOSTS_MAX:
                self._hosts.popitem(last=False)
            if now - known.since >= 60:
                known.since, known.recorded = now, 0
            if known.recorded >= self._per_minute:
                known.suppressed += 1
                return None
            known.recorded += 1
            suppressed, known.suppressed = known.suppressed, 0
            return suppressed

"""Alerts: the server records in its own log what is wrong with it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from drillcore_fdb.engine import Transaction
from drillcore_server.kernel.access import SERVER, Granted, as_server
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import RequestId
from drillcore_server.storage.records import RecordKind

_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Raised:
    kind: str


RAISED: Final = RecordKind(Raised)


def raise_alert(unit: Unit, kind: str, detail: Mapping[str, Any]) -> None:
    """Records an alert. `detail` holds ids, numbers and messages, no content. Raises `Refused` if it cannot."""
    request = RequestId(f"alert-{uuid4()}")
    fingerprint = hashlib.sha256(request.encode()).digest()
    call = Call("Alert", request, SERVER, datetime.now(UTC), _TIMEOUT_S, fingerprint)

    def work(_tr: Transaction, _granted: Granted, trail: Trail) -> Raised:
        trail.detail |= {"kind": kind, **detail}
        return Raised(kind)

    unit.write(call, as_server(None), RAISED, work)

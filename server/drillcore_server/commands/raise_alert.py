"""The server itself has something to say: a record of its own, in its own log."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from drillcore_fdb.engine import Transaction
from drillcore_server.auth.access import Granted, as_server
from drillcore_server.auth.principal import SERVER
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import RequestId
from drillcore_server.store.records import RecordKind

_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Raised:
    kind: str


RAISED: Final = RecordKind(Raised)


def raise_alert(unit: Unit, kind: str, detail: Mapping[str, Any]) -> None:
    """Records what is wrong. `detail` has no content: ids, numbers, and messages. Raises `Refused` if it cannot."""
    request = RequestId(f"alert-{uuid4()}")
    fingerprint = hashlib.sha256(request.encode()).digest()
    call = Call("Alert", request, SERVER, datetime.now(UTC), _TIMEOUT_S, fingerprint)

    def work(_tr: Transaction, _granted: Granted, trail: Trail) -> Raised:
        trail.detail |= {"kind": kind, **detail}
        return Raised(kind)

    unit.write(call, as_server(None), RAISED, work)

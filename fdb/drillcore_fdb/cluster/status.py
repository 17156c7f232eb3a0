"""The state of a cluster, from the status document that FoundationDB has at a special key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import fdb

from drillcore_fdb.cluster.binding import translated
from drillcore_fdb.cluster.watch import when_ready
from drillcore_fdb.errors import EngineError

_STATUS_KEY = b"\xff\xff/status/json"
_FACTS = {
    "database_available": ("client", "database_status", "available"),
    "coordinators_reachable": ("client", "coordinators", "quorum_reachable"),
    "redundancy": ("cluster", "configuration", "redundancy_mode"),
    "storage_engine": ("cluster", "configuration", "storage_engine"),
    "health": ("cluster", "data", "state", "name"),
    "key_value_bytes": ("cluster", "data", "total_kv_size_bytes"),
    "disk_used_bytes": ("cluster", "data", "total_disk_used_bytes"),
}


def read_status(database: fdb.Database, timeout_s: float) -> dict[str, str | int | float]:
    """The known facts, or only a `status` that says why there are none. Never raises."""
    try:
        document = _fetch(database, timeout_s)
    except EngineError as error:
        return {"status": str(error)}
    if document is None:
        return {"status": f"The cluster gave no status within {timeout_s:g} s"}
    status = json.loads(document)
    found = {name: _look_up(status, path) for name, path in _FACTS.items()}
    return {name: fact for name, fact in found.items() if isinstance(fact, str | int | float)}


def _fetch(database: fdb.Database, timeout_s: float) -> bytes | None:
    with translated():
        # Held until the answer is there: a transaction that is let go cancels its reads.
        transaction = database.create_transaction()
        answer = transaction.get(_STATUS_KEY)
        return answer.value if when_ready(answer).wait(timeout_s) else None


def _look_up(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document

"""Opens the store that an engine holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drillcore_fdb import format as stored
from drillcore_fdb.engine import Engine
from drillcore_fdb.format import STORE_PATH, StoreHeader
from drillcore_fdb.tuples import Subspace
from drillcore_server.storage.spaces import Space


def open_store(engine: Engine, path: Sequence[str] = STORE_PATH) -> tuple[Mapping[str, Subspace], StoreHeader]:
    """The directories of the store, from which `Keyspace` is made, and its header. Both are made on first use.

    Raises as `drillcore_fdb.format.open_store` does for a store that cannot be used, and does not change it.
    """
    return stored.open_store(engine, [space.value for space in Space], path)

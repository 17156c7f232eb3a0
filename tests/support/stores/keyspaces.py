"""Keyspaces for tests that need no store."""

from __future__ import annotations

from drillcore_fdb.engine import Engine
from drillcore_fdb.tuples import Subspace
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.spaces import Space


def keyspace_below(prefix: bytes = b"") -> Keyspace:
    """A keyspace without directories: below `prefix`, each space has its name for a prefix."""
    return Keyspace({space: Subspace(prefix)[space.value] for space in Space})


def keyspace_in(engine: Engine, *path: str) -> Keyspace:
    """A keyspace with a directory for each space below `path`, made on first use, and no header."""
    paths = [(*path, *space.split("/")) for space in Space]
    return Keyspace(dict(zip(Space, engine.directories(paths), strict=True)))

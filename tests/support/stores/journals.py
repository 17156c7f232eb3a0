"""Audit journals for tests that put a `Unit` together themselves."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from drillcore_fdb.engine import Engine
from drillcore_server.audit.signing_keys import KeyFiles
from drillcore_server.kernel.journal import Journal, SigningKeys
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords

STORE = UUID("57057057-0000-4000-8000-000000000000")


def open_journal(engine: Engine, keys: Keyspace, keyring: Keyring, directory: Path) -> Journal:
    """A journal that signs with a key in this directory. The key is made on first use."""
    signing = SigningKeys.open(engine, keys, STORE, KeyFiles(directory / "audit" / "keys"), datetime.now(UTC))
    return Journal(keys, keyring, SealedRecords(keyring), STORE, signing)


def open_journal_here(engine: Engine, keys: Keyspace, directory: Path) -> Journal:
    """As `open_journal`, for a store without a keyring: the keyring is kept in the engine itself."""
    keyring = Keyring.open(engine, engine.directory("keyring of the journal"), directory / "master.key")
    return open_journal(engine, keys, keyring, directory)

"""Lets a server join a cluster: keeps the keys of an invitation, once it is sure that they open this very store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from drillcore_fdb import directory
from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import EngineError
from drillcore_fdb.format import find_header
from drillcore_fdb.tuples import Subspace
from drillcore_formats.plugins import CommandError
from drillcore_server.app.config import CLUSTER_FILE, EngineKind, Settings
from drillcore_server.app.factories import open_engine
from drillcore_server.app.invitation import Invitation, SealedInvitation
from drillcore_server.audit.signing_keys import KeyFiles, read_key
from drillcore_server.storage import audit_keys, audit_records
from drillcore_server.storage.keyring import Keyring, make_secret_file, read_master_key, sync_directory
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store


class NewFiles:
    """Files and directories that are removed again at the end of the block, unless `keep` was called."""

    def __init__(self) -> None:
        self._files: list[Path] = []
        self._directories: list[Path] = []

    def write(self, path: Path, content: bytes) -> None:
        """Writes a file that only its owner may read: whole, and durable on return."""
        self._make_directory(path.parent)
        make_secret_file(path, content)
        self._files.append(path)

    def _make_directory(self, path: Path) -> None:
        if path.exists():
            return
        self._make_directory(path.parent)
        path.mkdir(mode=0o700)
        self._directories.append(path)
        sync_directory(path.parent)

    def keep(self) -> None:
        self._files.clear()
        self._directories.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files:
            file.unlink(missing_ok=True)
        for made in reversed(self._directories):
            if not os.listdir(made):
                made.rmdir()


def check_settings(settings: Settings) -> None:
    """Raises `CommandError` if the settings name no cluster."""
    if settings.engine.kind is not EngineKind.CLUSTER:
        raise CommandError(
            "NO_CLUSTER",
            "an embedded store belongs to one server, so there is no cluster to invite to or to join: set "
            "engine.kind = cluster, or give --engine cluster",
            exit_code=2,
        )


def accept(settings: Settings, sealed: SealedInvitation, passphrase: str) -> Invitation:
    """The invitation, if this server can use it. Raises `CommandError` otherwise."""
    invitation = sealed.open(passphrase)
    asked, invited = settings.engine.store_path[0], invitation.keys.directory
    if asked != invited:
        raise CommandError(
            "OTHER_STORE",
            f"the invitation is for the store in the directory {invited!r} of the cluster, but "
            f"engine.cluster.directory is {asked!r}",
        )
    held, signs = invitation.keys.audit_key is None, bool(settings.audit.signer_command)
    if held and not signs:
        raise CommandError(
            "KEY_HELD_ELSEWHERE",
            "the key that signs the audit trail of this store is held by a program, so the invitation does not have "
            "it: set audit.signer_command as on the other servers",
        )
    _check_local(settings, invitation)
    return invitation


def _check_local(settings: Settings, invitation: Invitation) -> None:
    """Raises `CommandError` if this server has other keys already."""
    master, audit = settings.engine.master_key_path, _audit_key_file(settings, invitation)
    with _unusable_keys():
        if master.exists() and read_master_key(master) != invitation.keys.master_key:
            raise _different(master)
        if audit is not None and audit.exists() and read_key(audit).private_bytes_raw() != invitation.keys.audit_key:
            raise _different(audit)


def _different(file: Path) -> CommandError:
    return CommandError(
        "KEYS_DIFFER",
        f"{file} is there already, and is not the key of the invitation: this server belongs to another store. Join "
        "with another data directory; nothing was changed",
    )


@contextmanager
def _unusable_keys() -> Iterator[None]:
    try:
        yield
    except EngineError as error:
        raise CommandError("KEYS_DIFFER", error.message) from error


def _audit_key_file(settings: Settings, invitation: Invitation) -> Path | None:
    """Where the audit key goes. None if a program has it."""
    if settings.audit.signer_command or invitation.keys.audit_key is None:
        return None
    return KeyFiles(settings.audit_key_dir).path(invitation.keys.audit_key_number)


def open_cluster(settings: Settings, invitation: Invitation, files: NewFiles) -> Engine:
    """Opens the engine with the cluster file of the settings, else of the data directory, else of the invitation."""
    if settings.engine.cluster_file is None:
        with _unwritable():
            files.write(settings.engine.data_dir / CLUSTER_FILE, invitation.keys.cluster_file.encode())
    return open_engine(settings.engine)


def keep_keys(settings: Settings, invitation: Invitation, engine: Engine, files: NewFiles) -> None:
    """Writes the keys where the settings say, unless they are there.

    Raises `CommandError`, and changes nothing, unless the cluster has the store of the invitation and the keys open it.
    """
    check_store(settings, invitation, engine)
    master, audit = settings.engine.master_key_path, _audit_key_file(settings, invitation)
    with _unwritable():
        if not master.exists():
            files.write(master, invitation.keys.master_key)
        if audit is not None and not audit.exists():
            assert invitation.keys.audit_key is not None
            files.write(audit, invitation.keys.audit_key)


@contextmanager
def _unwritable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{error.filename} cannot be written: {error.strerror or error}"
        raise CommandError("KEYS_NOT_KEPT", f"the keys of the invitation cannot be kept: {message}") from error


def check_store(settings: Settings, invitation: Invitation, engine: Engine) -> None:
    """Raises unless the keys of the invitation open the store that the settings name."""
    path = settings.engine.store_path
    header = find_header(engine, path)
    if header is None:
        raise CommandError(
            "STORE_NOT_FOUND",
            f"the cluster has no store in the directory {'/'.join(path)}: it is not the cluster of the invitation",
        )
    if header.store_id != invitation.store:
        raise CommandError(
            "OTHER_STORE",
            f"the invitation is for the store {invitation.store}, but this cluster has the store {header.store_id}",
        )
    _check_master_key(settings, invitation, engine)
    _check_audit_key(Keyspace(open_store(engine, path)[0]), invitation, engine)


def _check_master_key(settings: Settings, invitation: Invitation, engine: Engine) -> None:
    tree = engine.run(lambda tr: directory.tree(tr, settings.engine.keyring_path))
    if not tree:
        place = "/".join(settings.engine.keyring_path)
        raise CommandError("STORE_CORRUPT", f"the store's keyring {place} is gone; restore it from its own backup")
    Keyring.check_master_key(engine, Subspace(tree[()]), invitation.keys.master_key)


def _check_audit_key(keys: Keyspace, invitation: Invitation, engine: Engine) -> None:
    number = engine.run(lambda tr: audit_records.state(tr.snapshot, keys)).key_number
    invited = invitation.keys
    if number != invited.audit_key_number:
        raise CommandError(
            "INVITATION_EXPIRED", "the audit key was changed after the invitation was made; make a new invitation"
        )
    chained = engine.run(lambda tr: audit_keys.find(tr.snapshot, keys, number))
    if invited.audit_key is None:
        return
    public_key = Ed25519PrivateKey.from_private_bytes(invited.audit_key).public_key().public_bytes_raw()
    if chained is None or chained.public_key != public_key:
        raise CommandError("OTHER_STORE", "the audit key of the invitation is not the one of this store")

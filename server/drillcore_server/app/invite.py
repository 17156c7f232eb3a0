"""Makes an invitation to a cluster, and puts it on record."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from drillcore_fdb.engine import Engine
from drillcore_formats.plugins import CommandError
from drillcore_server.app.config import Settings
from drillcore_server.app.factories import open_keyring
from drillcore_server.app.invitation import Invitation, StoreKeys
from drillcore_server.audit.log_keeper import open_signing, record_own
from drillcore_server.audit.signing_keys import KeyFiles, read_key
from drillcore_server.kernel.journal import Journal
from drillcore_server.kernel.unit import Unit
from drillcore_server.storage import audit_records
from drillcore_server.storage.keyring import make_secret_file, read_master_key
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords

VALID_HOURS_MAX: Final = 720


def invite(
    settings: Settings,
    engine: Engine,
    keys: Keyspace,
    store: UUID,
    cluster_file: Path,
    file: Path,
    passphrase: str,
    valid_for: timedelta,
) -> Invitation:
    """Writes an invitation to `file`. Raises if this server does not have the keys of the store itself.

    The record comes first: an invitation that nobody knows of would be worse than a record of one that was not made.
    """
    with ExitStack() as opened:
        keyring = opened.enter_context(open_keyring(settings.engine, engine))
        signing = opened.enter_context(open_signing(settings.audit, settings.audit_key_dir, engine, keys, store))
        number = engine.run(lambda tr: audit_records.state(tr, keys)).key_number
        invitation = Invitation(
            uuid4(),
            store,
            (datetime.now(UTC) + valid_for).replace(microsecond=0),
            _keys(settings, cluster_file, number),
        )
        sealed = invitation.seal(passphrase)
        _check_new(file)
        unit = Unit(engine, keys, Journal(keys, keyring, SealedRecords(keyring), store, signing))
        record_own(unit, "InviteServer", {"invitation": str(invitation.id), "expires": invitation.expires.isoformat()})
    try:
        make_secret_file(file, sealed)
    except OSError as error:
        raise CommandError("INVITATION_NOT_WRITTEN", f"{file} cannot be written: {error.strerror or error}") from error
    return invitation


def _check_new(file: Path) -> None:
    if file.exists():
        raise CommandError("INVITATION_NOT_WRITTEN", f"{file} is there already; name a new file", exit_code=2)
    if not file.absolute().parent.is_dir():
        raise CommandError("INVITATION_NOT_WRITTEN", f"there is no directory {file.parent}", exit_code=2)


def _keys(settings: Settings, cluster_file: Path, number: int) -> StoreKeys:
    held = bool(settings.audit.signer_command)
    audit_key = None if held else read_key(KeyFiles(settings.audit_key_dir).path(number)).private_bytes_raw()
    return StoreKeys(
        directory=settings.engine.store_path[0],
        cluster_file=cluster_file.read_text(encoding="utf-8"),
        master_key=read_master_key(settings.engine.master_key_path),
        audit_key_number=number,
        audit_key=audit_key,
    )

"""Commands for servers that share a cluster: `drillcore cluster`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from drillcore_fdb.cluster.cluster_file import find_cluster_file
from drillcore_formats.plugins import CommandError, Session
from drillcore_server.app.invitation import PASSPHRASE_CHARACTERS_MIN
from drillcore_server.app.invite import VALID_HOURS_MAX, invite
from drillcore_server.app.join import check_settings
from drillcore_server.app.passphrase import obtain_passphrase, passphrase_option
from drillcore_server.app.store_options import engine_options, existing_store, store_settings
from drillcore_server.kernel.errors import Refused


@click.group()
def cluster() -> None:
    """Add servers to a cluster."""


@cluster.command("invite")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--valid-hours",
    type=click.FloatRange(0, VALID_HOURS_MAX, min_open=True),
    default=24.0,
    show_default=True,
    help="How long the invitation can be used.",
)
@passphrase_option
@engine_options
@click.pass_obj
def invite_server(
    session: Session,
    file: Path,
    valid_hours: float,
    passphrase_file: Any,
    kind: str | None,
    data_dir: Path | None,
    cluster_file: Path | None,
) -> None:
    """Write an invitation to FILE, with which another server joins the cluster.

    Run it on a server of the cluster, with the settings of that server, which may be running. FILE gets the master key,
    the key that signs the audit trail, and the cluster file, sealed under a passphrase. A key that is held by a program
    (audit.signer_command) is not in it. The invitation is on record in the server's own audit log.

    \b
    Examples:
      drillcore cluster invite invitation.json --engine cluster
      drillcore serve --engine cluster --join invitation.json   (on the next server)
    """
    settings = store_settings(session, kind, data_dir, cluster_file)
    check_settings(settings)
    passphrase = obtain_passphrase(session, passphrase_file, twice=True)
    if len(passphrase) < PASSPHRASE_CHARACTERS_MIN:
        raise click.UsageError(f"the passphrase must have at least {PASSPHRASE_CHARACTERS_MIN} characters")
    with existing_store(settings) as (engine, keys, header):
        found = find_cluster_file(settings.engine.cluster_file)
        try:
            made = invite(
                settings, engine, keys, header.store_id, found, file, passphrase, timedelta(hours=valid_hours)
            )
        except Refused as refused:
            raise CommandError(refused.reason.name, f"not invited: {refused.message}") from refused
    has_audit_key = made.keys.audit_key is not None
    session.emit(
        {
            "invitation": str(made.id),
            "file": str(file),
            "store_id": str(made.store),
            "expires": made.expires,
            "has_audit_key": has_audit_key,
        },
        f"{file} can be used until {made.expires.isoformat()}: drillcore serve --engine cluster --join {file}",
        *(
            []
            if has_audit_key
            else ["It has no audit key: set audit.signer_command on the new server, as on this one."]
        ),
    )

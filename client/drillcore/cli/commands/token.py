"""`drillcore token ...`"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from drillcore.cli.commands.account import find_account_id
from drillcore.cli.options import connection_options, write_options
from drillcore.cli.session import Session, pass_session
from drillcore.cli.session_file import write_secret
from drillcore.cli.text import listing, one_line
from drillcore_formats.plugins import CommandError

_REFERENCE = click.argument("reference", metavar="ACCOUNT")
_SERVER = click.option(
    "--server", "of_server", is_flag=True, help="The account is an operator's, which belongs to no tenant."
)
_DAY_S = 86_400.0


@click.group()
def token() -> None:
    """Create, list and revoke tokens of service accounts and sessions of people. ACCOUNT is an id or a login."""


@token.command()
@_REFERENCE
@click.argument("name")
@click.option(
    "--days",
    type=click.FloatRange(0, min_open=True),
    help="Days until it expires.  [default: as long as the server allows]",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the token to this file, which only you may read.",
)
@_SERVER
@write_options
@connection_options
@pass_session
def create(
    session: Session,
    reference: str,
    name: str,
    days: float | None,
    output: Path | None,
    of_server: bool,
    request_id: str | None,
) -> None:
    """Create a token for a service account. The server shows it only once.

    Example: drillcore --tenant acme token create nightly-job 'nightly ingest' --days 30 --output job.token
    """
    with session.client(in_tenant=not of_server) as client:
        account_id = find_account_id(client, reference, of_server)
        made = client.create_token(account_id, name, lifetime_s=(days or 0) * _DAY_S, request_id=request_id)
    until = one_line(made.info.expires_at)
    if output is None:
        session.emit(
            {"token": made.token, "info": made.info},
            made.token,
            f"valid until {until}; the server does not show it again",
        )
        return
    try:
        write_secret(output, made.token + "\n")
    except OSError as error:
        message = f"cannot write token {made.info.id} to {output}: {error.strerror}; run `drillcore token revoke`"
        raise CommandError("CANNOT_WRITE", message) from error
    session.emit({"token_file": output, "info": made.info}, f"wrote the token to {output}; it is valid until {until}")


@token.command("list")
@_REFERENCE
@_SERVER
@connection_options
@pass_session
def list_(session: Session, reference: str, of_server: bool) -> None:
    """List the sessions and tokens of an account."""
    with session.client(in_tenant=not of_server) as client:
        found = client.list_tokens(find_account_id(client, reference, of_server))
    columns = ["id", "name", "kind", "created", "expires", "last used", "revoked"]
    rows = [
        (
            info.id,
            info.name,
            "session" if info.session else "token",
            info.created_at,
            info.expires_at,
            info.last_used_at,
            "yes" if info.revoked else "",
        )
        for info in found
    ]
    session.emit({"tokens": found}, listing(columns, rows) if found else "no tokens")


@token.command()
@_REFERENCE
@click.argument("token_id", type=click.UUID, required=False)
@click.option("--all", "every", is_flag=True, help="Revoke every session and token of the account.")
@_SERVER
@write_options
@connection_options
@pass_session
def revoke(
    session: Session, reference: str, token_id: UUID | None, every: bool, of_server: bool, request_id: str | None
) -> None:
    """End a session or token of an account at once."""
    if (token_id is None) != every:
        raise click.UsageError("give either TOKEN_ID or --all")
    with session.client(in_tenant=not of_server) as client:
        account_id = find_account_id(client, reference, of_server)
        revoked = client.revoke_token(account_id, token_id, request_id=request_id)
    session.emit({"revoked": revoked}, f"{revoked} revoked")

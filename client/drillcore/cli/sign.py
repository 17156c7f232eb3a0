"""`drillcore sign` and `drillcore signatures`."""

from __future__ import annotations

import json
from typing import Any, Final
from uuid import UUID

import click

from drillcore._signature_results import PreparedSignature, SignatureTarget, SignatureTargetKind
from drillcore.cli.audit_text import signatures_table
from drillcore.cli.options import connection_options, page_options, write_options
from drillcore.cli.passwords import obtain, password_option
from drillcore.cli.session import Session, fetch_pages, pass_session
from drillcore.cli.text import printable

_KINDS: Final = {
    "node": SignatureTargetKind.NODE,
    "record": SignatureTargetKind.AUDIT_RECORD,
    "export": SignatureTargetKind.EXPORT,
    "review": SignatureTargetKind.REVIEW,
    "fact": SignatureTargetKind.FACT,
}
_KIND: Final = click.Choice(list(_KINDS))


@click.command()
@click.argument("kind", type=_KIND)
@click.argument("target", type=click.UUID, metavar="ID")
@click.option("--meaning", required=True, help="What the signature stands for, such as approved or reviewed.")
@click.option("--version", type=click.IntRange(1), help="Of a node: sign this version or none.")
@click.option("--login", default="", help="Your login. The first signature of a session needs it.")
@password_option("--password-file", "File with your password")
@write_options
@connection_options
@pass_session
def sign(
    session: Session,
    kind: str,
    target: UUID,
    meaning: str,
    version: int | None,
    login: str,
    password_file: Any,
    request_id: str | None,
) -> None:
    """Sign a node, an audit record, an export, a review or a fact, as it is now.

    Shows what would be signed, and asks for your password, and for the first signature of a session for your login.
    Only a person who is logged in can sign: see drillcore login.

    Example: drillcore sign node 5f0c… --meaning approved
    """
    with session.client() as client:
        prepared = client.prepare_signature(SignatureTarget(_KINDS[kind], target, version or 0), meaning)
        _show(prepared)
        login = login or (_ask_login(session) if prepared.needs_login else "")
        password = obtain(session, password_file, "Password")
        made = client.sign_record(prepared, password, login=login, request_id=request_id)
    session.emit(made, signatures_table([made]))


def _show(prepared: PreparedSignature) -> None:
    """What would be signed, on stderr: stdout is for the result."""
    target = prepared.target
    click.echo(f"{target.kind.value} {target.id}, version {target.version}:", err=True)
    if prepared.content:
        shown = json.dumps(json.loads(prepared.content), indent=2, ensure_ascii=False)
        click.echo("\n".join(printable(line) for line in shown.splitlines()), err=True)
    else:
        click.echo("(too large to be shown here: read it before you sign)", err=True)
    click.echo(f"Your signature would mean: {printable(prepared.meaning)}", err=True)


def _ask_login(session: Session) -> str:
    if session.json:
        raise click.UsageError("the first signature of a session needs the login too: add --login")
    return str(click.prompt("Login", err=True))


@click.command()
@click.argument("kind", type=_KIND, required=False)
@click.argument("target", type=click.UUID, metavar="[ID]", required=False)
@click.option("--version", type=click.IntRange(1), help="Of a node: only of this version.")
@page_options
@connection_options
@pass_session
def signatures(
    session: Session,
    kind: str | None,
    target: UUID | None,
    version: int | None,
    page_size: int,
    page_token: str,
    all_pages: bool,
) -> None:
    """List signatures, oldest first: of a node, record, export, review or fact, or all that you may see."""
    if (kind is None) != (target is None):
        raise click.UsageError("name both what it is and its id, or nothing")
    wanted = SignatureTarget(_KINDS[kind], target, version or 0) if kind and target else None
    with session.client() as client:
        page = fetch_pages(
            lambda token: client.list_signatures(wanted, page_size=page_size, page_token=token), page_token, all_pages
        )
    session.emit_page("signatures", page, signatures_table(page.items))

"""`drillcore sign` and `drillcore signatures`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

import click
from rich.table import Table

from drillcore._api.signatures import PreparedSignature, Signature, SignatureTarget, SignatureTargetKind
from drillcore.cli.options import connection_options, obtain_password, page_options, password_option, write_options
from drillcore.cli.session import Session, fetch_pages, pass_session
from drillcore.cli.text import listing, one_line, printable

_KINDS: Final = {
    "node": SignatureTargetKind.NODE,
    "record": SignatureTargetKind.AUDIT_RECORD,
    "export": SignatureTargetKind.EXPORT,
    "review": SignatureTargetKind.REVIEW,
    "fact": SignatureTargetKind.FACT,
}
_KIND: Final = click.Choice(list(_KINDS))


def signatures_table(found: Iterable[Signature]) -> Table:
    return listing(["id", "signed", "version", "by", "at", "meaning"], map(_row, found))


def _row(signature: Signature) -> tuple[object, ...]:
    target = f"{signature.target.kind.value} {signature.target.id}"
    who = f"{signature.signer_name} ({signature.signer_login}){_elsewhere(signature)}"
    return signature.id, target, signature.target.version, who, signature.signed_at, signature.meaning


def signature_text(signature: Signature) -> str:
    """A signature in one line: name, time and meaning."""
    return f"{signature.signer_name}{_elsewhere(signature)}, {one_line(signature.signed_at)}: {signature.meaning}"


def _elsewhere(signature: Signature) -> str:
    """Marks a signature that came with a core: this server does not vouch for it."""
    return " on another server" if signature.foreign else ""


@click.command()
@click.argument("kind", type=_KIND)
@click.argument("target", type=click.UUID, metavar="ID")
@click.option("--meaning", required=True, help="What your signature means, such as approved or reviewed.")
@click.option("--version", type=click.IntRange(1), help="Sign only if the node or fact is at this version.")
@click.option("--login", default="", help="Your login. Only the first signature of a session needs it.")
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

    The command shows what you would sign and asks for your password. For the first signature of a session it asks for
    your login too. Only a person who is logged in can sign: see `drillcore login`.

    Example: drillcore sign node 5f0c… --meaning approved
    """
    with session.client() as client:
        prepared = client.prepare_signature(SignatureTarget(_KINDS[kind], target, version or 0), meaning)
        _show(prepared)
        login = login or (_ask_login(session) if prepared.needs_login else "")
        password = obtain_password(session, password_file, "Password", flag="--password-file")
        made = client.sign_record(prepared, password, login=login, request_id=request_id)
    session.emit(made, signatures_table([made]))


def _show(prepared: PreparedSignature) -> None:
    """Shows on stderr what would be signed. Stdout is for the result."""
    target = prepared.target
    click.echo(f"{target.kind.value} {target.id}, version {target.version}:", err=True)
    if prepared.content:
        shown = json.dumps(json.loads(prepared.content), indent=2, ensure_ascii=False)
        click.echo("\n".join(printable(line) for line in shown.splitlines()), err=True)
    else:
        click.echo("(too large to show here: read it before you sign)", err=True)
    click.echo(f"Your signature would mean: {printable(prepared.meaning)}", err=True)


def _ask_login(session: Session) -> str:
    if session.json:
        raise click.UsageError("the first signature of a session needs your login too: give --login")
    return str(click.prompt("Login", err=True))


@click.command()
@click.argument("kind", type=_KIND, required=False)
@click.argument("target", type=click.UUID, metavar="[ID]", required=False)
@click.option("--version", type=click.IntRange(1), help="Only signatures of this version of the node or fact.")
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
    """List the signatures of a node, record, export, review or fact, or all that you may see, oldest first."""
    if (kind is None) != (target is None):
        raise click.UsageError("give both KIND and ID, or neither")
    signed = SignatureTarget(_KINDS[kind], target, version or 0) if kind and target else None
    with session.client() as client:
        page = fetch_pages(
            lambda token: client.list_signatures(signed, page_size=page_size, page_token=token), page_token, all_pages
        )
    session.emit_page("signatures", page, signatures_table(page.items))

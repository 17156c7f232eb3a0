"""`drillcore account ...`"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import click

from drillcore._account_results import Account, AccountKind, Grant
from drillcore._client import Client
from drillcore.cli.grants import GrantText, grant_text, resolved
from drillcore.cli.options import connection_options, page_options, version_option, write_options
from drillcore.cli.passwords import obtain, password_option
from drillcore.cli.session import Session, as_id, fetch_pages, pass_session
from drillcore.cli.text import listing, one_line, pairs

F = TypeVar("F", bound=Callable[..., Any])
_SERVER: Final = click.option("--server", "of_server", is_flag=True, help="An operator's account, of no tenant.")
_GRANT: Final = click.option("--grant", "grants", type=GrantText(), multiple=True, help="May be repeated.")
_REFERENCE: Final = click.argument("reference", metavar="ID|LOGIN")


def _changing(command: F) -> F:
    """What every command that changes an account takes."""
    with_session = cast(F, pass_session(command))
    return _REFERENCE(_SERVER(version_option(write_options(connection_options(with_session)))))


@click.group()
def account() -> None:
    """Create, show and change accounts, and what they are granted. For operators.

    An account is a person's, who logs in, or a service's, which has tokens. It belongs to a tenant or, with --server,
    to the operators of the server. Its id and login are never used again.

    Grants are written ROLE[@TENANT][:CORPUS[:LEVELS]], such as reader, writer:rules or reader:rules:section,master.
    Roles: reader, writer, reviewer, auditor, operator.
    """


@account.command()
@click.argument("login")
@click.option("--name", default="", help="Printed name. A person needs one.")
@click.option("--kind", type=click.Choice([kind.value for kind in AccountKind]), default="person", show_default=True)
@_GRANT
@password_option("--password-file", "File with the first password, which the person must change")
@click.option("--no-password", is_flag=True, help="For a person who comes with a certificate or an OIDC token.")
@click.option("--certificate", "certificates", metavar="SHA256", multiple=True, help="Client certificate, in hex.")
@click.option("--oidc-issuer", default="", help="Issuer of tokens that stand for the account.")
@click.option("--oidc-subject", default="", help="Their subject.")
@_SERVER
@write_options
@connection_options
@pass_session
def create(
    session: Session,
    login: str,
    name: str,
    kind: str,
    grants: tuple[Grant, ...],
    password_file: Any,
    no_password: bool,
    certificates: tuple[str, ...],
    oidc_issuer: str,
    oidc_subject: str,
    of_server: bool,
    request_id: str | None,
) -> None:
    """Create an account. A person's first password is asked for, and must be changed at the first login.

    Example: drillcore --tenant acme account create ann --name 'Ann Example' --grant reader --grant reviewer:rules
    """
    asked = kind == AccountKind.PERSON.value and not no_password
    password = obtain(session, password_file, "First password", twice=True) if asked else ""
    with session.client(in_tenant=not of_server) as client:
        created = client.create_account(
            login,
            kind=AccountKind(kind),
            name=name,
            grants=resolved(client, grants),
            password=password,
            certificate_sha256=certificates,
            oidc_issuer=oidc_issuer,
            oidc_subject=oidc_subject,
            server_account=of_server,
            request_id=request_id,
        )
    _emit(session, created)


@account.command("list")
@_SERVER
@page_options
@connection_options
@pass_session
def list_(session: Session, of_server: bool, page_size: int, page_token: str, all_pages: bool) -> None:
    """List accounts, one page unless --all."""
    with session.client(in_tenant=not of_server) as client:
        page = fetch_pages(
            lambda token: client.list_accounts(server_accounts=of_server, page_size=page_size, page_token=token),
            page_token,
            all_pages,
        )
    rows = [
        (one.id, one.login, one.kind.value, one.name, ", ".join(sorted({grant.role.value for grant in one.grants})))
        for one in page.items
    ]
    session.emit_page("accounts", page, listing(["id", "login", "kind", "name", "roles"], rows))


@account.command()
@_REFERENCE
@_SERVER
@connection_options
@pass_session
def show(session: Session, reference: str, of_server: bool) -> None:
    """Show an account."""
    with session.client(in_tenant=not of_server) as client:
        account_id = as_id(reference)
        found = client.get_account(account_id, login=None if account_id else reference, server_account=of_server)
    _emit(session, found)


@account.command()
@click.option("--name", help="New printed name.")
@click.option("--enable", is_flag=True, help="Let a disabled account in again. Its sessions and tokens stay ended.")
@click.option("--add-certificate", metavar="SHA256", multiple=True, help="Client certificate, in hex.")
@click.option("--remove-certificate", metavar="SHA256", multiple=True)
@click.option("--oidc-issuer", help="Issuer of tokens that stand for the account; '' for none.")
@click.option("--oidc-subject", help="Their subject; '' for none.")
@_changing
def update(
    session: Session,
    reference: str,
    of_server: bool,
    expected_version: int | None,
    request_id: str | None,
    name: str | None,
    enable: bool,
    add_certificate: tuple[str, ...],
    remove_certificate: tuple[str, ...],
    oidc_issuer: str | None,
    oidc_subject: str | None,
) -> None:
    """Change an account; what is not named stays."""
    with _account(session, reference, of_server) as (client, account_id):
        updated = client.update_account(
            account_id,
            name=name,
            disabled=False if enable else None,
            add_certificate_sha256=add_certificate,
            remove_certificate_sha256=remove_certificate,
            oidc_issuer=oidc_issuer,
            oidc_subject=oidc_subject,
            expected_version=expected_version,
            request_id=request_id,
        )
    _emit(session, updated)


@account.command()
@_GRANT
@_changing
def grant(
    session: Session,
    reference: str,
    of_server: bool,
    expected_version: int | None,
    request_id: str | None,
    grants: tuple[Grant, ...],
) -> None:
    """Replace all that an account is granted, at once. Without --grant it may do nothing any more.

    Example: drillcore --tenant acme account grant ann --grant reader --grant reviewer:rules
    """
    with _account(session, reference, of_server) as (client, account_id):
        updated = client.set_grants(
            account_id, resolved(client, grants), expected_version=expected_version, request_id=request_id
        )
    _emit(session, updated)


@account.command()
@_changing
def unlock(
    session: Session, reference: str, of_server: bool, expected_version: int | None, request_id: str | None
) -> None:
    """Let an account in again that was locked after too many wrong passwords."""
    with _account(session, reference, of_server) as (client, account_id):
        updated = client.update_account(
            account_id, unlock=True, expected_version=expected_version, request_id=request_id
        )
    _emit(session, updated)


@account.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@_changing
def disable(
    session: Session, reference: str, of_server: bool, expected_version: int | None, request_id: str | None, yes: bool
) -> None:
    """Keep an account out. Its sessions and tokens end at once; its id and login stay its own."""
    session.confirm(f"Disable the account {reference}", yes)
    with _account(session, reference, of_server) as (client, account_id):
        updated = client.update_account(
            account_id, disabled=True, expected_version=expected_version, request_id=request_id
        )
    _emit(session, updated)


@account.command()
@click.argument("reference", metavar="[ID|LOGIN]", default="")
@password_option("--old-password-file", "File with your old password")
@password_option("--new-password-file", "File with the new password")
@_SERVER
@write_options
@connection_options
@pass_session
def password(
    session: Session,
    reference: str,
    old_password_file: Any,
    new_password_file: Any,
    of_server: bool,
    request_id: str | None,
) -> None:
    """Change your own password; or as an operator that of another, who must change it at the next login."""
    old = "" if reference else obtain(session, old_password_file, "Old password")
    new = obtain(session, new_password_file, "New password", twice=True)
    if reference:
        with _account(session, reference, of_server) as (client, account_id):
            client.set_password(new, account_id=account_id, request_id=request_id)
    else:
        with session.client(in_tenant=False) as client:
            client.set_password(new, old_password=old, request_id=request_id)
    session.emit({"changed": True}, "the password is changed; other sessions of the account have ended")


@contextmanager
def _account(session: Session, reference: str, of_server: bool) -> Iterator[tuple[Client, UUID]]:
    with session.client(in_tenant=not of_server) as client:
        yield client, find_account_id(client, reference, of_server)


def find_account_id(client: Client, reference: str, of_server: bool) -> UUID:
    """The id of the account that the text names by id or login. Raises NotFound for a login that nobody has."""
    return as_id(reference) or client.get_account(login=reference, server_account=of_server).id


def _emit(session: Session, found: Account) -> None:
    rows = [
        (field.name, one_line(value))
        for field in dataclasses.fields(found)
        if (value := _shown(getattr(found, field.name))) not in {"", None}
    ]
    session.emit(found, pairs(rows))


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return "; ".join(grant_text(one) if isinstance(one, Grant) else str(one) for one in value)
    return value.value if isinstance(value, AccountKind) else value

"""`drillcore account ...`"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import click

from drillcore._api.accounts import Account, AccountKind, Grant, Role
from drillcore._client import Client
from drillcore.cli.options import (
    connection_options,
    obtain_password,
    page_options,
    password_option,
    version_option,
    write_options,
    yes_option,
)
from drillcore.cli.session import Session, as_id, fetch_pages, find_corpus_id, pass_session
from drillcore.cli.text import listing, one_line, pairs
from drillcore.cli.values import LevelName


class GrantText(click.ParamType[Grant]):
    """A grant. Its tenant and corpus are still names or ids, as the user typed them."""

    name = "role[@tenant][:corpus[:levels]]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Grant:
        if isinstance(value, Grant):
            return value
        who, _, where = str(value).partition(":")
        role, _, tenant = who.partition("@")
        corpus, _, levels = where.partition(":")
        if role not in {known.value for known in Role}:
            self.fail(f"{role!r} is not a role: write one of {', '.join(known.value for known in Role)}", param, ctx)
        named = [LevelName().convert(level, param, ctx) for level in levels.split(",") if level]
        return Grant(Role(role), tenant or None, corpus or None, tuple(named))


def resolved(client: Client, grants: Iterable[Grant]) -> list[Grant]:
    """The grants, with ids in place of the names of tenants and corpora."""
    return [_resolved(client, grant) for grant in grants]


def _resolved(client: Client, grant: Grant) -> Grant:
    tenant, corpus = grant.tenant_id, grant.corpus_id
    if tenant is not None:
        tenant = as_id(str(tenant)) or client.get_tenant(name=str(tenant)).id
    if corpus is not None and tenant is not None:
        corpus = as_id(str(corpus)) or client.get_corpus(name=str(corpus), tenant_id=tenant).id
    elif corpus is not None:
        corpus = find_corpus_id(client, str(corpus))
    return dataclasses.replace(grant, tenant_id=tenant, corpus_id=corpus)


def grant_text(grant: Grant) -> str:
    """The grant in words, for people."""
    parts = [grant.role.value]
    if grant.tenant_id is not None:
        parts.append(f"in tenant {grant.tenant_id}")
    if grant.corpus_id is not None:
        parts.append(f"for corpus {grant.corpus_id}")
    if grant.levels:
        parts.append("at " + ", ".join(level.name.lower() for level in grant.levels))
    return " ".join(parts)


F = TypeVar("F", bound=Callable[..., Any])
_SERVER: Final = click.option(
    "--server", "of_server", is_flag=True, help="An operator's account, which belongs to no tenant."
)
_GRANT: Final = click.option("--grant", "grants", type=GrantText(), multiple=True, help="What it may do. Repeatable.")
_REFERENCE: Final = click.argument("reference", metavar="ID|LOGIN")


def _changing(command: F) -> F:
    """The argument and options of every command that changes an account."""
    with_session = cast(F, pass_session(command))
    return _REFERENCE(_SERVER(version_option(write_options(connection_options(with_session)))))


@click.group()
def account() -> None:
    """Create, show and change accounts and their grants. For operators.

    An account is for a person, who logs in, or for a service, which has tokens. It belongs to a tenant or, with
    --server, to the operators of the server. Its id and login are never used again.

    Write a grant as ROLE[@TENANT][:CORPUS[:LEVELS]], such as reader, writer:rules or reader:rules:section,master.
    Roles: reader, writer, reviewer, auditor, operator.
    """


@account.command()
@click.argument("login")
@click.option("--name", default="", help="Printed name. A person needs one.")
@click.option("--kind", type=click.Choice([kind.value for kind in AccountKind]), default="person", show_default=True)
@_GRANT
@password_option("--password-file", "File with the first password, which the person must change")
@click.option("--no-password", is_flag=True, help="For a person who logs in with a certificate or an OIDC token.")
@click.option(
    "--certificate", "certificates", metavar="SHA256", multiple=True, help="SHA-256 of a client certificate, in hex."
)
@click.option("--oidc-issuer", default="", help="Issuer of the OIDC tokens that this account logs in with.")
@click.option("--oidc-subject", default="", help="Subject of those tokens.")
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
    """Create an account. For a person, the command asks for a first password. The person changes it at first login.

    Example: drillcore --tenant acme account create ann --name 'Ann Example' --grant reader --grant reviewer:rules
    """

    password = ""
    if kind == AccountKind.PERSON.value and not no_password:
        password = obtain_password(session, password_file, "First password", flag="--password-file", twice=True)
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
    rows = [(found.id, found.login, found.kind, found.name, _roles(found)) for found in page.items]
    session.emit_page("accounts", page, listing(["id", "login", "kind", "name", "roles"], rows))


def _roles(found: Account) -> str:
    return ", ".join(sorted({grant.role.value for grant in found.grants}))


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
@click.option("--enable", is_flag=True, help="Enable a disabled account. Its old sessions and tokens do not come back.")
@click.option("--add-certificate", metavar="SHA256", multiple=True, help="Certificate to add. Repeatable.")
@click.option("--remove-certificate", metavar="SHA256", multiple=True, help="Certificate to remove. Repeatable.")
@click.option("--oidc-issuer", help="Issuer of the OIDC tokens that this account logs in with; '' for none.")
@click.option("--oidc-subject", help="Subject of those tokens; '' for none.")
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
    """Change an account. What you do not give stays as it is."""
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
    """Replace all grants of an account at once. Without --grant it may do nothing any more.

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
    """Unlock an account that was locked after too many wrong passwords."""
    with _account(session, reference, of_server) as (client, account_id):
        updated = client.update_account(
            account_id, unlock=True, expected_version=expected_version, request_id=request_id
        )
    _emit(session, updated)


@account.command()
@yes_option
@_changing
def disable(
    session: Session, reference: str, of_server: bool, expected_version: int | None, request_id: str | None, yes: bool
) -> None:
    """Disable an account. Its sessions and tokens end at once. Its id and login are never used again."""
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
    """Change your own password or, as an operator, that of another account.

    The other person must change it again at the next login.
    """
    old = ""
    if not reference:
        old = obtain_password(session, old_password_file, "Old password", flag="--old-password-file")
    new = obtain_password(session, new_password_file, "New password", flag="--new-password-file", twice=True)
    if reference:
        with _account(session, reference, of_server) as (client, account_id):
            client.set_password(new, account_id=account_id, request_id=request_id)
    else:
        with session.client(in_tenant=False) as client:
            client.set_password(new, old_password=old, request_id=request_id)
    session.emit({"changed": True}, "changed the password; the other sessions of the account have ended")


@contextmanager
def _account(session: Session, reference: str, of_server: bool) -> Iterator[tuple[Client, UUID]]:
    with session.client(in_tenant=not of_server) as client:
        yield client, find_account_id(client, reference, of_server)


def find_account_id(client: Client, reference: str, of_server: bool) -> UUID:
    """The id of the account with this id or login. Raises NotFound for an unknown login."""
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
        return "; ".join(grant_text(item) if isinstance(item, Grant) else str(item) for item in value)
    return value

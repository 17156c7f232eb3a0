"""`drillcore login`, `logout` and `whoami`."""

from __future__ import annotations

from typing import Any

import click

from drillcore._api.accounts import Login
from drillcore._client import Client
from drillcore.cli.commands.account import grant_text
from drillcore.cli.options import connection_options, obtain_password, password_option
from drillcore.cli.session import Session, as_id, pass_session
from drillcore.cli.session_file import KeptSession, forget_session, keep_session
from drillcore.cli.text import one_line, pairs
from drillcore.errors import FailedPrecondition
from drillcore_proto.reasons import Reason


@click.command()
@click.argument("login_name", metavar="LOGIN")
@password_option("--password-file", "File with the password")
@password_option("--new-password-file", "File with a new password, which replaces the old one")
@connection_options
@pass_session
def login(session: Session, login_name: str, password_file: Any, new_password_file: Any) -> None:
    """Open a session and keep it for later commands.

    The command asks for your password. If it has expired, or somebody else set it, the command also asks for a new one.
    The session is kept in ~/.config/drillcore/session or --session-file. Commands without a token use it.

    Example: drillcore login ann
    """
    password = obtain_password(session, password_file, "Password", flag="--password-file")
    new_password = _new_password(session, new_password_file) if new_password_file else ""
    with session.client(in_tenant=False, as_nobody=True) as client:
        opened = _log_in(session, client, login_name, password, new_password)
        kept = session.kept_session_file()
        keep_session(kept, KeptSession(client.settings.address, login_name, opened.token))
    document = {
        "account_id": opened.account_id,
        "tenant_id": opened.tenant_id,
        "expires_at": opened.expires_at,
        "idle_timeout_s": opened.idle_timeout_s,
        "session_file": kept,
    }
    until = one_line(opened.expires_at)
    minutes = opened.idle_timeout_s / 60
    session.emit(document, f"logged in as {login_name} until {until}, or until unused for {minutes:g} minutes")


def _log_in(session: Session, client: Client, login_name: str, password: str, new_password: str) -> Login:
    try:
        return client.login(login_name, password, new_password=new_password)
    except FailedPrecondition as error:
        if error.reason is not Reason.PASSWORD_EXPIRED or session.json:
            raise
        click.echo(error.message, err=True)
        return client.login(login_name, password, new_password=_new_password(session, None))


def _new_password(session: Session, file: Any) -> str:
    return obtain_password(session, file, "New password", flag="--new-password-file", twice=True)


@click.command()
@connection_options
@pass_session
def logout(session: Session) -> None:
    """End the session that `drillcore login` opened."""
    with session.client(in_tenant=False) as client:
        client.logout()
    forget_session(session.kept_session_file())
    session.emit({"logged_out": True}, "logged out")


@click.command()
@connection_options
@pass_session
def whoami(session: Session) -> None:
    """Show which account or token the server recognizes, and its grants."""
    with session.client(in_tenant=False) as client:
        info = client.server_info()
        own = as_id(info.principal)
        account = None if own is None else client.get_account(own)
    rows = [("principal", one_line(info.principal)), ("tenant", one_line(info.tenant_id))]
    if account is not None:
        rows += [("login", one_line(account.login)), ("name", one_line(account.name))]
        rows += [("granted", one_line(grant_text(grant))) for grant in account.grants]
    session.emit({"principal": info.principal, "tenant_id": info.tenant_id, "account": account}, pairs(rows))

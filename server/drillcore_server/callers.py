"""Puts together what tells who is calling, from the settings and the store."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import structlog

from drillcore.settings import SettingsError
from drillcore_fdb.engine import Engine
from drillcore_server.auth import operator_token
from drillcore_server.auth.authenticator import Authenticator
from drillcore_server.auth.oidc import Issuers, KeyFileError
from drillcore_server.auth.principal import Principal
from drillcore_server.auth.tokens import Token, Tokens, digest
from drillcore_server.config import Settings, TokenSettings
from drillcore_server.domain.accounts import EVERYTHING, Grant, Role
from drillcore_server.domain.ids import PrincipalId, TenantId
from drillcore_server.store import accounts
from drillcore_server.store.keyspace import Keyspace


def open_authenticator(
    settings: Settings, engine: Engine, keys: Keyspace, log: structlog.stdlib.BoundLogger
) -> Authenticator:
    """Raises `SettingsError` if the key set of an issuer cannot be used."""
    try:
        issuers = Issuers(settings.auth.oidc)
    except KeyFileError as error:
        raise SettingsError(f"auth.oidc: {error}") from error
    return Authenticator(engine, keys, Tokens(_tokens(settings, engine, keys, log)), issuers)


def _tokens(settings: Settings, engine: Engine, keys: Keyspace, log: structlog.stdlib.BoundLogger) -> Sequence[Token]:
    """Those of the settings. Without any, the first operator's: made unless an account can operate the server."""
    if settings.server.tokens:
        return [_token(token) for token in settings.server.tokens]
    directory = settings.engine.data_dir
    file = directory / operator_token.FILE_NAME
    has_operator = engine.run(lambda tr: accounts.has_operator(tr.snapshot, keys))
    if not file.exists() and not has_operator:
        operator_token.make(directory)
        log.warning(
            "nobody may call yet: made a token that may do everything, to create the first operator; then remove it",
            file=str(file),
            create=f"drillcore --token-file {file} account create LOGIN --server --name 'NAME' --grant operator",
        )
    elif file.exists() and has_operator:
        log.warning("operators have accounts, but the first operator's token is still there: remove it", file=str(file))
    found = operator_token.read(directory)
    return [found] if found else []


def _token(settings: TokenSettings) -> Token:
    tenant = None if settings.tenant_id is None else TenantId(UUID(settings.tenant_id))
    secret = bytes.fromhex(settings.token_sha256) if settings.token_sha256 else digest(settings.token or "")
    return Token(Principal(PrincipalId(settings.name), tenant, grants=_grants(settings.roles, tenant)), secret)


def _grants(roles: Sequence[str], tenant: TenantId | None) -> tuple[Grant, ...]:
    if roles:
        return tuple(Grant(Role(role), tenant) for role in roles)
    return EVERYTHING if tenant is None else (Grant(Role.READER, tenant), Grant(Role.WRITER, tenant))

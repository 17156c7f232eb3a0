"""Who is calling: from what a call brings to a principal.

    authorization: Bearer TOKEN   a token of the settings, a session's or service account's, or an issuer's (OIDC)
    no such header                the client certificate, if it stands for an account

Only what never changes is kept in memory: whose token it is. Whether it still counts, and what it may do, is read in
the transaction of each call (`access.grants_of`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Engine, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth.certificates import read_certificate
from drillcore_server.auth.oidc import Issuers, Subject, is_jwt
from drillcore_server.auth.principal import Principal, Proof, principal_of
from drillcore_server.auth.tokens import Tokens, digest
from drillcore_server.domain.accounts import Account
from drillcore_server.domain.errors import Denied
from drillcore_server.store import accounts, sessions
from drillcore_server.store.keyspace import Keyspace

_KNOWN_MAX: Final = 10_000


class Authenticator:
    def __init__(self, engine: Engine, keys: Keyspace, tokens: Tokens, issuers: Issuers) -> None:
        self._engine = engine
        self._keys = keys
        self._tokens = tokens
        self._issuers = issuers
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, Principal] = OrderedDict()

    def authenticate(self, authorization: str | None, certificate_pem: bytes | None, now: datetime) -> Principal:
        """Raises `Denied` for a caller who has not proved who it is."""
        if authorization is None and certificate_pem is not None:
            return self._by_certificate(certificate_pem, now)
        token = _bearer_token(authorization)
        token_hash = digest(token)
        static = self._tokens.find(token_hash)
        if static is not None:
            return static
        if self._issuers and is_jwt(token):
            return self._by_subject(self._issuers.verify(token))
        return self._by_session(token_hash)

    def _by_session(self, token_hash: bytes) -> Principal:
        with self._lock:
            known = self._known.get(token_hash)
            if known is not None:
                self._known.move_to_end(token_hash)
                return known
        found = self._engine.run(lambda tr: self._find_session(tr, token_hash))
        if found is None:
            raise Denied(Reason.UNAUTHENTICATED, "the token is not known to this server")
        with self._lock:
            self._known[token_hash] = found
            if len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        return found

    def _find_session(self, tr: Transaction, token_hash: bytes) -> Principal | None:
        session = sessions.find_session(tr.snapshot, self._keys, token_hash)
        account = None if session is None else accounts.find(tr.snapshot, self._keys, session.account)
        if session is None or account is None:
            return None
        proof = Proof.SESSION if session.is_login else Proof.TOKEN
        return replace(principal_of(account, proof), session=token_hash)

    def _by_certificate(self, pem: bytes, now: datetime) -> Principal:
        certificate = read_certificate(pem)
        certificate.check_valid(now)
        account = self._engine.run(lambda tr: accounts.find_by_certificate(tr.snapshot, self._keys, certificate.sha256))
        if account is None:
            raise Denied(Reason.UNAUTHENTICATED, "the client certificate stands for no account; send a token")
        return replace(principal_of(account, Proof.CERTIFICATE), certificate=certificate.sha256)

    def _by_subject(self, subject: Subject) -> Principal:
        account = self._engine.run(
            lambda tr: accounts.find_by_subject(tr.snapshot, self._keys, subject.issuer, subject.subject)
        )
        if account is None:
            raise Denied(Reason.UNAUTHENTICATED, "the token's subject stands for no account")
        if subject.tenant is not None and not _is_tenant(account, subject.tenant):
            raise Denied(Reason.UNAUTHENTICATED, "the token is for another tenant than its subject's account")
        return replace(principal_of(account, Proof.OIDC), subject=(subject.issuer, subject.subject))


def _bearer_token(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Denied(Reason.UNAUTHENTICATED, "send the token as 'authorization: Bearer TOKEN'")
    return token


def _is_tenant(account: Account, claimed: str) -> bool:
    try:
        return account.tenant_id == UUID(claimed)
    except ValueError:
        return False

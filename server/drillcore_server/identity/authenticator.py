"""Finds out who is calling, from what a call brings.

    authorization: Bearer TOKEN   a token of the settings, of a session or service account, or of an issuer (OIDC)
    no such header                the client certificate, if it identifies an account

Only what never changes is kept in memory: whose token it is. Each call reads in its own transaction whether the token
still counts and what it allows (`access.grants_of`).

Tokens of issuers are JSON Web Tokens, verified with the issuer's key set in a file. Nothing is fetched: whoever runs
the server replaces the file when the issuer's keys change. TLS has already verified that a client certificate comes
from the configured authority and that the client has its key.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from drillcore_fdb.engine import Engine, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.identity.bearer_tokens import Tokens, digest
from drillcore_server.identity.settings import OidcSettings
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel import session_store as sessions
from drillcore_server.kernel.access import Principal, Proof, principal_of
from drillcore_server.kernel.account_model import Account
from drillcore_server.kernel.errors import Denied
from drillcore_server.storage.keyspace import Keyspace

_KEYS_BYTES_MAX: Final = 1 << 20
_REQUIRED: Final = ("iss", "sub", "aud", "exp", "iat")


@dataclass(frozen=True, slots=True)
class Subject:
    """The person or service that a token is about."""

    issuer: str
    subject: str
    tenant: str | None
    """The value of the tenant claim, if the issuer's settings demand one."""


class KeyFileError(ValueError):
    """A key set cannot be used. The message says which one and why."""


class KeyFile:
    """An issuer's public keys by id. The file is read again when it changes, and must then be complete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._read_at: tuple[int, int, int] | None = None
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self.keys()

    def keys(self) -> Mapping[str, jwt.PyJWK]:
        """The keys of the file. Raises `KeyFileError` if it is broken.

        Keys that were in it before are no longer used.
        """
        with self._lock:
            try:
                found = self._path.stat()
                state = found.st_mtime_ns, found.st_size, found.st_ino
                if state != self._read_at:
                    self._read_at, self._keys = None, {}
                    self._keys = _public_keys(self._path, found.st_size)
                    self._read_at = state
            except OSError as error:
                raise KeyFileError(f"the key set {self._path} cannot be read: {error.strerror}") from error
            return self._keys


def _public_keys(path: Path, size_bytes: int) -> dict[str, jwt.PyJWK]:
    if size_bytes > _KEYS_BYTES_MAX:
        raise KeyFileError(f"the key set {path} has over {_KEYS_BYTES_MAX} bytes")
    try:
        keys = jwt.PyJWKSet.from_json(path.read_text("utf-8")).keys
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError) as error:
        raise KeyFileError(f"{path} is not a JSON Web Key Set with keys to verify with") from error
    if any(key.key_type == "oct" for key in keys):
        raise KeyFileError(f"the key set {path} holds a secret: only public keys belong there")
    return {key.key_id: key for key in keys if key.key_id}


class Issuers:
    def __init__(self, settings: Iterable[OidcSettings]) -> None:
        """Raises `KeyFileError`."""
        self._issuers = {issuer.issuer: (issuer, KeyFile(issuer.keys_file)) for issuer in settings}

    def __bool__(self) -> bool:
        return bool(self._issuers)

    def verify(self, token: str) -> Subject:
        """The subject of a token.

        Raises `Denied`, which says what is wrong with the token, but not which key is missing.
        """
        try:
            return self._verified(token)
        except jwt.ExpiredSignatureError as error:
            raise _refused("has expired") from error
        except jwt.ImmatureSignatureError as error:
            raise _refused("is not valid yet") from error
        except jwt.InvalidAudienceError as error:
            raise _refused("is for another audience") from error
        except jwt.MissingRequiredClaimError as error:
            raise _refused(f"has no claim {error.claim!r}") from error
        except jwt.InvalidAlgorithmError as error:
            raise _refused("is signed in a way that its issuer does not use") from error
        except jwt.PyJWTError as error:
            raise _refused("was not signed by a key of its issuer, or is none") from error

    def _verified(self, token: str) -> Subject:
        unverified = jwt.decode_complete(token, options={"verify_signature": False})
        settings, file = self._issuers.get(str(unverified["payload"].get("iss")), (None, None))
        if settings is None or file is None:
            raise _refused("is of an issuer that this server does not trust")
        try:
            key = file.keys().get(str(unverified["header"].get("kid")))
        except KeyFileError as error:
            raise _refused("cannot be verified: the key set of its issuer is broken") from error
        if key is None:
            raise _refused("names no key of its issuer")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(settings.algorithms),
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=settings.clock_skew_s,
            options={"require": [*_REQUIRED, *filter(None, [settings.tenant_claim])]},
        )
        if not claims["sub"]:
            raise _refused("has an empty subject")
        tenant = None if settings.tenant_claim is None else str(claims[settings.tenant_claim])
        return Subject(settings.issuer, str(claims["sub"]), tenant)


def is_jwt(token: str) -> bool:
    return token.count(".") == 2


def _refused(why: str) -> Denied:
    return Denied(Reason.UNAUTHENTICATED, f"the token {why}")


@dataclass(frozen=True, slots=True)
class Certificate:
    sha256: bytes
    valid_from: datetime
    valid_until: datetime

    def check_valid(self, now: datetime) -> None:
        """TLS checks the dates only when the connection is made, and connections can last for long."""
        if not self.valid_from <= now <= self.valid_until:
            raise Denied(Reason.UNAUTHENTICATED, "the client certificate has expired, or is not valid yet")


@lru_cache(maxsize=1_000)
def read_certificate(pem: bytes) -> Certificate:
    try:
        found = x509.load_pem_x509_certificate(pem)
        digest = hashlib.sha256(found.public_bytes(Encoding.DER)).digest()
        return Certificate(digest, found.not_valid_before_utc, found.not_valid_after_utc)
    except ValueError as error:
        raise Denied(Reason.UNAUTHENTICATED, "the client certificate cannot be read") from error


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
        """The caller. Raises `Denied` if it is not authenticated."""
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
            raise Denied(
                Reason.UNAUTHENTICATED,
                "this server does not know the token: check --token-file, or client.token_file in the settings",
            )
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

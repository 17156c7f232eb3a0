"""Tokens of issuers that the settings trust: JSON Web Tokens, verified with the issuer's key set in a file.

Nothing is fetched: whoever runs the server brings the key set, and replaces the file when the issuer's keys change.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt

from drillcore_proto.reasons import Reason
from drillcore_server.auth.settings import OidcSettings
from drillcore_server.domain.errors import Denied

_KEYS_BYTES_MAX: Final = 1 << 20
_REQUIRED: Final = ("iss", "sub", "aud", "exp", "iat")


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a token speaks of."""

    issuer: str
    subject: str
    tenant: str | None
    """The value of the tenant's claim, where the issuer's settings want one."""


class KeyFileError(ValueError):
    """A key set cannot be used. The message says which and why."""


class KeyFile:
    """An issuer's public keys by their ids. Read again when the file changes, and then it must be whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._read_at: tuple[int, int, int] | None = None
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self.keys()

    def keys(self) -> Mapping[str, jwt.PyJWK]:
        """Raises `KeyFileError`: keys that were taken out of the file are not used because it is now broken."""
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
        self._issuers = {one.issuer: (one, KeyFile(one.keys_file)) for one in settings}

    def __bool__(self) -> bool:
        return bool(self._issuers)

    def verify(self, token: str) -> Subject:
        """Whom a token speaks of. Raises `Denied`, saying in which way it is no good, but not which key was missing."""
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

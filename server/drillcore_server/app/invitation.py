"""An invitation: a file that takes the keys of a store from one server of a cluster to the next.

    {"drillcore_invitation": 1, "id": ..., "store": ..., "expires": ..., "salt": ..., "nonce": ..., "sealed": ...,
     "sha256": ...}

The keys are sealed with AES-256-GCM under a key that Argon2id makes of a passphrase. Everything else in the file is
authenticated with them. `sha256` is the hash of the rest, so that a damaged file is not taken for a wrong passphrase.

The expiry keeps a forgotten file from being used. It does not take back keys that somebody has unsealed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID

from argon2.low_level import Type, hash_secret_raw
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from drillcore_formats.audit.encoding import from_base64, parse_json, to_base64
from drillcore_formats.audit.findings import Malformed
from drillcore_formats.plugins import CommandError
from drillcore_server.storage.keyring import MASTER_KEY_BYTES

PASSPHRASE_CHARACTERS_MIN: Final = 12
FILE_BYTES_MAX: Final = 1 << 20
_MARK: Final = "drillcore_invitation"
_VERSION: Final = 1
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_SEED_BYTES: Final = 32
_ARGON2: Final = {"time_cost": 3, "memory_cost": 65_536, "parallelism": 4, "hash_len": 32, "type": Type.ID}
"""The second recommendation of RFC 9106. Belongs to the version: a file cannot ask for more memory."""


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """What a server needs to open a store on a cluster."""

    directory: str
    """The directory of the cluster that holds the store."""
    cluster_file: str
    """The content of FoundationDB's cluster file."""
    master_key: bytes = field(repr=False)
    audit_key_number: int
    audit_key: bytes | None = field(repr=False)
    """The seed of the key that signs the audit trail. None if a program holds the key."""

    def encode(self) -> bytes:
        audit_key = None if self.audit_key is None else to_base64(self.audit_key)
        return _json(
            {
                "directory": self.directory,
                "cluster_file": self.cluster_file,
                "master_key": to_base64(self.master_key),
                "audit_key_number": self.audit_key_number,
                "audit_key": audit_key,
            }
        )

    @classmethod
    def decode(cls, content: bytes) -> Self:
        said = json.loads(content)
        audit_key = said["audit_key"]
        return cls(
            said["directory"],
            said["cluster_file"],
            from_base64(said["master_key"], "the master key", MASTER_KEY_BYTES),
            said["audit_key_number"],
            None if audit_key is None else from_base64(audit_key, "the audit key", _SEED_BYTES),
        )


@dataclass(frozen=True, slots=True)
class Invitation:
    id: UUID
    store: UUID
    expires: datetime
    keys: StoreKeys

    def seal(self, passphrase: str) -> bytes:
        """The content of the file."""
        salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
        header: dict[str, Any] = {
            _MARK: _VERSION,
            "id": str(self.id),
            "store": str(self.store),
            "expires": self.expires.isoformat(timespec="seconds"),
            "salt": to_base64(salt),
            "nonce": to_base64(nonce),
        }
        sealed = _cipher(passphrase, salt).encrypt(nonce, self.keys.encode(), _json(header))
        document = {**header, "sealed": to_base64(sealed)}
        return _json({**document, "sha256": _hash(document)}) + b"\n"


@dataclass(frozen=True, slots=True)
class SealedInvitation:
    """An invitation as it was read from a file. Only `open` shows whether its header is what it was sealed with."""

    path: Path
    id: UUID
    store: UUID
    expires: datetime
    _header: Mapping[str, Any]
    _sealed: bytes = field(repr=False)

    @classmethod
    def read(cls, path: Path, now: datetime) -> Self:
        """Raises `CommandError` if the file cannot be read, is damaged or has expired."""
        try:
            with path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise CommandError("INVITATION_UNREADABLE", f"{path} cannot be read: {error.strerror or error}") from error
        try:
            found = cls._parse(path, content)
        except (Malformed, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path) from error
        if now >= found.expires:
            raise CommandError(
                "INVITATION_EXPIRED", f"the invitation {path} expired at {found.expires.isoformat()}; make a new one"
            )
        return found

    @classmethod
    def _parse(cls, path: Path, content: bytes) -> Self:
        document = parse_json(content, "the invitation")
        if document[_MARK] != _VERSION:
            raise CommandError(
                "INVITATION_UNREADABLE",
                f"the invitation {path} was made by another release of Drillcore: use the same release on both servers",
            )
        if document.pop("sha256") != _hash(document):
            raise Malformed("the file is not the one that was made")
        sealed = from_base64(document.pop("sealed"), "sealed")
        expires = datetime.fromisoformat(document["expires"]).astimezone(UTC)
        return cls(path, UUID(document["id"]), UUID(document["store"]), expires, document, sealed)

    def open(self, passphrase: str) -> Invitation:
        """Raises `CommandError` if the passphrase is not the one that it was made with."""
        header = self._header
        try:
            salt = from_base64(header["salt"], "salt", _SALT_BYTES)
            nonce = from_base64(header["nonce"], "nonce", _NONCE_BYTES)
            content = _cipher(passphrase, salt).decrypt(nonce, self._sealed, _json(header))
            keys = StoreKeys.decode(content)
        except InvalidTag as error:
            raise CommandError(
                "WRONG_PASSPHRASE", f"this is not the passphrase of the invitation {self.path}"
            ) from error
        except (Malformed, ValueError, KeyError, TypeError) as error:
            raise _damaged(self.path) from error
        return Invitation(self.id, self.store, self.expires, keys)


def _damaged(path: Path) -> CommandError:
    return CommandError("INVITATION_DAMAGED", f"{path} is not an invitation, or it is damaged; copy it again")


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    return AESGCM(hash_secret_raw(passphrase.encode(), salt, **_ARGON2))  # type: ignore[arg-type]


def _hash(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(_json(document)).hexdigest()


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

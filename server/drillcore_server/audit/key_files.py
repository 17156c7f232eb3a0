"""Signing keys in files: one for each number, that only the server may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from drillcore_server.audit.signers import PrivateHalf, SignerUnavailableError
from drillcore_server.secret_file import make_secret_file

_SEED_BYTES: Final = 32


class KeyFiles:
    """`<number>.key` in a directory: 32 bytes, or PKCS8 as PEM."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def place(self) -> str:
        return str(self._directory)

    def find(self, number: int) -> PrivateHalf | None:
        path = self._path(number)
        if not path.exists():
            return None
        key = read_key(path)
        return PrivateHalf(key.public_key().public_bytes_raw(), key.sign)

    def find_or_make(self, number: int) -> PrivateHalf:
        """Durable when it returns. One that is there already, of an attempt that came to nothing, is taken."""
        found = self.find(number)
        if found is None:
            self._make(number)
            found = self.find(number)
            assert found is not None
        return found

    def discard(self, number: int) -> None:
        """Removes a key that never signed anything."""
        self._path(number).unlink(missing_ok=True)

    def _make(self, number: int) -> None:
        """Another server that shares the directory may do the same: the first file stays."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        draft = self._directory / f"{number}-{secrets.token_hex(8)}.new"
        make_secret_file(draft, pem)
        try:
            os.link(draft, self._path(number))
        except FileExistsError:
            return
        finally:
            draft.unlink()
            _sync(self._directory)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number}.key"


def read_key(path: Path) -> Ed25519PrivateKey:
    """Raises `SignerUnavailableError`, saying what to do, for a file that others may read or that is no such key."""
    try:
        if path.stat().st_mode & 0o077:
            raise SignerUnavailableError(f"others may read the audit key {path}: chmod 600 it")
        content = path.read_bytes()
    except OSError as error:
        raise SignerUnavailableError(f"the audit key {path} cannot be read: {error.strerror or error}") from error
    if len(content) == _SEED_BYTES:
        return Ed25519PrivateKey.from_private_bytes(content)
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise SignerUnavailableError(
            f"{path} is no audit key: it must have {_SEED_BYTES} bytes, or Ed25519 as PKCS8 PEM without a password"
        )
    return key


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

"""Passwords are kept as Argon2id hashes. Hashing takes long and much memory, so it is done outside any transaction."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable
from importlib import resources

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.auth.settings import AuthSettings
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.passwords import PASSWORD_CHARACTERS_MAX, check_password, composed


class Passwords:
    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._hasher = PasswordHasher(
            time_cost=settings.argon2_passes,
            memory_cost=settings.argon2_memory_kib,
            parallelism=settings.argon2_lanes,
        )
        self._turns = threading.BoundedSemaphore(settings.hashes_at_once)
        self._common = _common_passwords()
        self._nobodys = self.hash(secrets.token_urlsafe())

    def hash(self, password: str) -> str:
        with self._turns:
            return self._hasher.hash(composed(password))

    def is_right(self, kept: str | None, password: str) -> bool:
        """Whether it is the password. Where there is none, it takes as long to say no."""
        if len(password) > PASSWORD_CHARACTERS_MAX:
            return False
        with self._turns:
            try:
                return self._hasher.verify(kept or self._nobodys, composed(password)) and kept is not None
            except VerifyMismatchError:
                return False
            except (InvalidHashError, VerificationError) as error:
                raise StoreCorruptError("a stored password hash cannot be read") from error

    def is_outdated(self, kept: str) -> bool:
        """Whether the settings have changed since it was hashed."""
        return self._hasher.check_needs_rehash(kept)

    def check_new(
        self, password: str, *, login: str, name: str, earlier: Iterable[str] = (), field: str = "new_password"
    ) -> None:
        """Raises `BadInput` for one that must not be used. `earlier` are hashes, the newest first."""
        settings = self._settings
        check_password(
            password,
            characters_min=settings.password_characters_min,
            login=login,
            name=name,
            common=self._common,
            field=field,
        )
        for kept in [*earlier][: settings.passwords_remembered]:
            if self.is_right(kept, password):
                message = f"the password is one of the last {settings.passwords_remembered}"
                raise BadInput(Reason.PASSWORD_REFUSED, message, field=field)


def _common_passwords() -> frozenset[str]:
    text = resources.files("drillcore_server.auth").joinpath("common_passwords.txt").read_text("utf-8")
    return frozenset(line for line in text.split("\n") if line)

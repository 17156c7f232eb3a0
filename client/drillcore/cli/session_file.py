"""The file that `drillcore login` leaves for later commands: a session's token, and the server it is for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from drillcore.settings import SettingsError

FILE_NAME: Final = "session"


@dataclass(frozen=True, slots=True)
class KeptSession:
    address: str
    """The server that opened it: the token is sent to no other."""
    login: str
    token: str = field(repr=False)


def session_file(named: Path | None, environment: Mapping[str, str]) -> Path:
    """The file named, else the user's own."""
    home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config")
    return named or home / "drillcore" / FILE_NAME


def keep_session(path: Path, session: KeptSession) -> None:
    """Writes the file, which only its owner may read."""
    document = {"address": session.address, "login": session.login, "token": session.token}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(path, json.dumps(document) + "\n")
    except OSError as error:
        raise SettingsError(f"the session cannot be kept in {path}: {error.strerror}") from error


def write_secret(path: Path, content: str) -> None:
    """A file of mode 600, whole or as it was before."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
    draft.replace(path)


def read_session(path: Path) -> KeptSession | None:
    """What was kept, if anything. Raises SettingsError if others may read it, or if it is no such file."""
    try:
        if not path.exists():
            return None
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"others may read the session file {path}: chmod 600 it, or log in again")
        document = json.loads(path.read_text("utf-8"))
        return KeptSession(document["address"], document["login"], document["token"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(f"{path} is not a session file; remove it, and log in again") from error


def forget_session(path: Path) -> None:
    path.unlink(missing_ok=True)

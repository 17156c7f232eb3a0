"""The file in which `drillcore login` keeps a session: its token, and the server that it is for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from drillcore._files import written_whole
from drillcore_formats.settings import SettingsError

FILE_NAME: Final = "session"


@dataclass(frozen=True, slots=True)
class KeptSession:
    address: str
    """The server that opened the session. The token is sent to no other server."""
    login: str
    token: str = field(repr=False)


def session_file(named: Path | None, environment: Mapping[str, str]) -> Path:
    """The file that was named, else the one in the user's configuration folder."""
    home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config")
    return named or home / "drillcore" / FILE_NAME


def keep_session(path: Path, session: KeptSession) -> None:
    """Writes the file. Only its owner may read it. Raises SettingsError."""
    document = {"address": session.address, "login": session.login, "token": session.token}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(path, json.dumps(document) + "\n")
    except OSError as error:
        raise SettingsError(f"the session cannot be kept in {path}: {error.strerror}") from error


def write_secret(path: Path, content: str) -> None:
    """Writes a text file that only its owner may read. Raises OSError."""
    with written_whole(path) as file:
        file.write(content.encode())


def read_session(path: Path) -> KeptSession | None:
    """The session in the file, None without a file. Raises SettingsError if others may read it or it is malformed."""
    try:
        if not path.exists():
            return None
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"others may read the session file {path}: run `chmod 600` on it, or log in again")
        document = json.loads(path.read_text("utf-8"))
        return KeptSession(document["address"], document["login"], document["token"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(f"{path} is not a session file: remove it and log in again") from error


def forget_session(path: Path) -> None:
    path.unlink(missing_ok=True)

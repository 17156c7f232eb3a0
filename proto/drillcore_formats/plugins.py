"""What the command line `drillcore` and the packages that add to it share: sessions, errors, and checks of the doctor.

An entry point of the group "drillcore.commands" is a click command, or a group of them. The command line adds `--json`
and `--config` to each, and gives it the `Session` as click's context object (`click.pass_obj`). An entry point of the
group "drillcore.doctor" is a callable that takes the environment and the settings file (None if there is none) and
yields a `Check` for each thing it looked at.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class CommandError(Exception):
    """A command failed, and there is more to say than which call failed. Shown in one line."""

    def __init__(self, reason: str, message: str, *, exit_code: int = 1, request_id: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.exit_code = exit_code
        self.request_id = request_id


class Session(Protocol):
    """The flags that a command was given, and how it shows its result."""

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def named_file(self) -> Path | None:
        """The settings file that `--config` names, if it does."""

    @property
    def json(self) -> bool:
        """Whether `--json` was given."""

    def emit(self, document: object, *human: Any) -> None:
        """Shows a result: the document with `--json`, else the texts and rich tables made for people."""


class Status(enum.Enum):
    """The result of a check: OK, WARN for what works but needs attention, FAIL for what does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `remedy` says how to fix a problem; `details` are further lines."""

    name: str
    status: Status
    message: str
    remedy: str = ""
    details: tuple[str, ...] = ()

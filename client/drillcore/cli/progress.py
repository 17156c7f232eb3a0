"""Progress bars on stderr. They appear only in a terminal, and never with --json."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from drillcore._api.core_data import CoreProgress
from drillcore._api.quads import QuadImportProgress
from drillcore.cli.session import Session

_RECEIVING, _SENDING = "receiving", "sending"
FILE_COLUMNS: Final = (BarColumn, DownloadColumn, TransferSpeedColumn)
"""How much of a file is done, and how fast."""


def is_shown(session: Session) -> bool:
    return not session.json and sys.stderr.isatty()


class Bar:
    """A bar for one task, visible inside a `with` statement. `fields` are what text columns refer to."""

    def __init__(
        self,
        *columns: ProgressColumn,
        shown: bool,
        description: str = "",
        total: float | None = None,
        **fields: Any,
    ) -> None:
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._progress = Progress(*columns, console=console, disable=not shown, transient=True)
        self._task = self._progress.add_task(description, total=total, **fields)

    def update(self, **changes: Any) -> None:
        self._progress.update(self._task, **changes)

    def watched(self, file: BinaryIO) -> BinaryIO:
        """The file; the bar moves as it is read."""
        return self._progress.wrap_file(file, task_id=self._task)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


@contextlib.contextmanager
def busy(session: Session, what: str) -> Iterator[None]:
    """Shows what the server does, and for how long, while one call takes long."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Bar(*columns, shown=is_shown(session), description=what):
        yield


class TransferProgress(Bar):
    """Shows what happens to one file, how much of it is done, how fast and for how long."""

    def __init__(self, session: Session, what: str, total_bytes: int | None = None) -> None:
        super().__init__(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *(column() for column in FILE_COLUMNS),
            TimeElapsedColumn(),
            shown=is_shown(session),
            description=what,
            total=total_bytes,
        )
        self._stage = ""

    def received(self, size_bytes: int) -> None:
        """Shows how many bytes of a download have arrived."""
        self._show(_RECEIVING, _RECEIVING, size_bytes)

    def exporting(self, progress: CoreProgress) -> None:
        if progress.stage == _SENDING:  # the core is finished, so its size is known now
            self.update(total=progress.size_bytes)
            return
        self.importing(progress)

    def importing(self, progress: CoreProgress) -> None:
        text = f"{progress.stage}, {progress.records:,} records" if progress.records else progress.stage
        self._show(progress.stage, text, progress.size_bytes)

    def quads(self, progress: QuadImportProgress) -> None:
        self._show("reading", f"reading, {progress.quads_read:,} quads", progress.bytes_received)

    def _show(self, stage: str, text: str, size_bytes: int) -> None:
        if stage != self._stage:
            self._stage = stage
            self._progress.reset(self._task)  # each stage has its own speed
        self.update(description=text, completed=size_bytes)

"""The bar that commands show on stderr while one file is made, sent or received."""

from __future__ import annotations

import sys
from typing import BinaryIO, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from drillcore._core_results import CoreProgress
from drillcore._quad_results import QuadImportProgress
from drillcore.cli.session import Session

_RECEIVING, _SENDING = "receiving", "sending"


class TransferProgress:
    """Says what is done with the file, how much of it, how fast and for how long; nothing with --json or in a pipe."""

    def __init__(self, session: Session, what: str, total_bytes: int | None = None) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            disable=session.json or not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._progress.add_task(what, total=total_bytes)
        self._stage = ""

    def received(self, size_bytes: int) -> None:
        """So many bytes of a download have come."""
        self._show(_RECEIVING, _RECEIVING, size_bytes)

    def exporting(self, progress: CoreProgress) -> None:
        if progress.stage == _SENDING:  # the core is made: now it is known how large it is
            self._progress.update(self._task, total=progress.size_bytes)
            return
        self.importing(progress)

    def importing(self, progress: CoreProgress) -> None:
        told = f"{progress.stage}, {progress.records:,} records" if progress.records else progress.stage
        self._show(progress.stage, told, progress.size_bytes)

    def quads(self, progress: QuadImportProgress) -> None:
        self._show("reading", f"reading, {progress.quads_read:,} quads", progress.bytes_received)

    def watched(self, file: BinaryIO) -> BinaryIO:
        """The file, shown as it is read."""
        return self._progress.wrap_file(file, task_id=self._task)

    def _show(self, stage: str, told: str, size_bytes: int) -> None:
        if stage != self._stage:
            self._stage = stage
            self._progress.reset(self._task)  # each stage has a speed of its own
        self._progress.update(self._task, description=told, completed=size_bytes)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

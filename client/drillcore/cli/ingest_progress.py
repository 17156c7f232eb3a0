"""The bar that `drillcore ingest` shows on stderr while it works."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from drillcore._document_results import AddEvent, DocumentOutcome, OutcomeKind
from drillcore.cli.ingest_batches import Batch


class IngestProgress:
    """Shows bytes of documents that are dealt with, with their rate and the time left.

    Bytes that are merely sent do not count: a batch is sent in no time, and then the server works. Within a batch the
    server's progress, which is in characters, stands for bytes; at the batch's end the bytes are known.
    """

    def __init__(self, total_bytes: int, documents: int, *, shown: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[documents]}/{task.fields[of]} documents"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            disable=not shown,
            transient=True,
        )
        self._task = self._progress.add_task("", total=total_bytes, documents=0, of=documents)
        self._documents = 0
        self._finished_bytes = 0
        self._begin(())

    def _begin(self, batch: Batch) -> None:
        self._sizes = {item.file.name: item.file.size_bytes for item in batch}
        self._sent_bytes = 0
        self._settled_bytes = 0
        self._prepared = 0

    def begin(self, batch: Batch) -> None:
        """A batch is about to be sent, or to be sent again."""
        self._begin(batch)
        self._show(0)

    def sent(self, size_bytes: int) -> None:
        self._sent_bytes += size_bytes

    def event(self, event: AddEvent) -> None:
        if not isinstance(event, DocumentOutcome):
            self._prepared = event.characters_prepared
        elif event.kind in {OutcomeKind.UNCHANGED, OutcomeKind.FAILED}:
            # These were not prepared. A file of several documents has several outcomes, and counts with the first.
            self._settled_bytes += self._sizes.pop(event.name, 0)
        self._show(min(self._settled_bytes + self._prepared, self._sent_bytes))

    def end(self, batch: Batch) -> None:
        """A batch was added."""
        self._documents += len(batch)
        self._finished_bytes += sum(item.file.size_bytes for item in batch)
        self._show(0)

    def _show(self, in_batch_bytes: int) -> None:
        completed = self._finished_bytes + in_batch_bytes
        self._progress.update(self._task, completed=completed, documents=self._documents)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

"""Downloads a knowledge core into a file, and continues after a lost connection."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, Self

from drillcore._api.core_data import CoreExport, CoreProgress, to_exported, to_progress
from drillcore._files import written_whole
from drillcore._transport.download import not_whole, one_request
from drillcore._transport.follow import ended_early
from drillcore._transport.resume import FurthestProgress
from drillcore._transport.upload import PIECE_BYTES, Listener, Upload
from drillcore.errors import DrillcoreError
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb

try:
    import fcntl
except ImportError:  # on Windows nothing keeps two processes from writing the same part
    fcntl = None  # type: ignore[assignment]


_PATH: Final = "/drillcore_proto.v1.CoreService/ExportCore"
_RECEIVING: Final = "receiving"
_KEPT_S: Final = 24 * 3600.0
"""How long a part is kept. A later export should have the corpus as it is then."""


def part_path(path: Path, revision: int | None) -> Path:
    """The file for the part of a core that has arrived. It names the revision, if that is known."""
    return path.with_name(f".{path.name}.part" if revision is None else f".{path.name}.{revision}.part")


def unfinished_revision(path: Path) -> int | None:
    """The revision of an unfinished download, None if there is none. Parts older than a day are removed."""
    written = re.compile(re.escape(f".{path.name}.") + r"([0-9]{1,20})\.part")
    found = {part: written.fullmatch(part.name) for part in path.parent.glob(".*.part")}
    parts = {int(name[1]): part for part, name in found.items() if name}
    for revision, part in list(parts.items()):
        if time.time() - part.stat().st_mtime > _KEPT_S:
            part.unlink(missing_ok=True)
            del parts[revision]
    return max(parts, default=None)


def signature_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


class CoreDownload:
    """Continues after the part that has arrived. Once the part is complete, it replaces the file."""

    def __init__(
        self,
        path: Path,
        part: Path,
        request: pb.ExportCoreRequest,
        request_id: str | None,
        renew: Callable[[], object],
        on_event: Listener,
    ) -> None:
        self._path = path
        self._part = part
        self._request = request
        self._request_id = request_id
        self._furthest = FurthestProgress(renew)
        self._on_event = on_event

    def __enter__(self) -> Self:
        self._file = _opened(self._part)
        try:
            self._size_bytes, self._hash = _hashed(self._file)
        except OSError:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._size_bytes == 0:
            self._part.unlink(missing_ok=True)

    def begin(self, number: int) -> Upload[CoreExport]:
        self._resumed = self._size_bytes > 0
        self._request.resume_at_bytes = self._size_bytes
        self._request.resume_sha256 = self._hash.digest() if self._resumed else b""
        name = self._request_id if number == 0 or self._request_id is None else f"{self._request_id}.{number}"
        return Upload(_PATH, self._request, (), one_request, lambda _listener: _Receipt(self), None, name, None)

    def end(self) -> None:
        self._file.flush()

    def starts_over(self, error: DrillcoreError) -> bool:
        """Whether the part belongs to another core: the corpus has changed, or another call wrote the part."""
        if not self._resumed or error.reason is not Reason.CORE_CHANGED:
            return False
        self._clear()
        return True

    def tell(self, progress: CoreProgress) -> None:
        self._furthest.reached(progress.stage, progress.size_bytes)
        self._on_event(progress)

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self._file.flush()  # Python 3.14 holds back 128 KiB, and who is killed keeps what came
        self._hash.update(piece)
        self._size_bytes += len(piece)
        self.tell(CoreProgress(_RECEIVING, self._size_bytes))

    def finish(self, done: pb.CoreDone | None, request_id: str) -> CoreExport:
        """Puts the file in its place. Raises Internal if the file is not what the server says it sent."""
        if done is None:
            raise ended_early(request_id)
        if (done.size_bytes, done.sha256) != (self._size_bytes, self._hash.digest()):
            self._clear()
            raise not_whole(request_id)
        note = signature_path(self._path)
        with written_whole(note) as file:
            file.write(done.signature.encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self._path)
        return to_exported(done, self._path, note)

    def _clear(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._size_bytes, self._hash = 0, hashlib.sha256()


class _Receipt:
    """Collects the answers to one call."""

    def __init__(self, receiving: CoreDownload) -> None:
        self._receiving = receiving
        self._done: pb.CoreDone | None = None

    def take(self, answer: bytes) -> None:
        response = pb.ExportCoreResponse.FromString(answer)
        match response.WhichOneof("part"):
            case "data":
                self._receiving.write(response.data)
            case "progress":
                self._receiving.tell(to_progress(response.progress))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> CoreExport:
        return self._receiving.finish(self._done, request_id)


def _opened(part: Path) -> BinaryIO:
    """Opens the part for reading and writing. Only its owner may read it, and only one process may write it."""
    file = os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise BlockingIOError(error.errno, "another process is writing it", str(part)) from error
    return file


def _hashed(file: BinaryIO) -> tuple[int, hashlib._Hash]:
    """The size of the file, and a hash that can be updated further."""
    found, size_bytes = hashlib.sha256(), 0
    while piece := file.read(PIECE_BYTES):
        found.update(piece)
        size_bytes += len(piece)
    return size_bytes, found

"""A core on its way from a server into a file."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, Self

try:
    import fcntl
except ImportError:  # not everywhere: there nobody says that two write the same part
    fcntl = None  # type: ignore[assignment]

from drillcore import _convert_cores as convert
from drillcore._core_results import CoreExport, CoreProgress
from drillcore._download import not_whole, one_request
from drillcore._follow import ended_early
from drillcore._resume import Heights
from drillcore._upload import PIECE_BYTES, Listener, Upload
from drillcore.errors import DrillcoreError
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb

_PATH: Final = "/drillcore_proto.v1.CoreService/ExportCore"
_RECEIVING: Final = "receiving"
_KEPT_S: Final = 24 * 3600.0
"""How long a part is worth going on with: who exports again much later wants the corpus as it is then."""


def part_path(path: Path, revision: int | None) -> Path:
    """Where the part of a core is kept that came already; of a revision, if it is known."""
    return path.with_name(f".{path.name}.part" if revision is None else f".{path.name}.{revision}.part")


def unfinished_revision(path: Path) -> int | None:
    """The revision that a part is there of; None if there is none. What was left for more than a day is given up."""
    written = re.compile(re.escape(f".{path.name}.") + r"([0-9]{1,20})\.part")
    found = {one: written.fullmatch(one.name) for one in path.parent.glob(".*.part")}
    parts = {int(name[1]): part for part, name in found.items() if name}
    for revision, part in list(parts.items()):
        if time.time() - part.stat().st_mtime > _KEPT_S:
            part.unlink(missing_ok=True)
            del parts[revision]
    return max(parts, default=None)


def signature_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


class Receiving:
    """Goes on after what is in the part; when all has come the part takes the place of the file."""

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
        self._heights = Heights(renew)
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
        """What came is of another core: the corpus has changed, or the part was of another call."""
        if not self._resumed or error.reason is not Reason.CORE_CHANGED:
            return False
        self._clear()
        return True

    def tell(self, progress: CoreProgress) -> None:
        self._heights.reached(progress.stage, progress.size_bytes)
        self._on_event(progress)

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self._hash.update(piece)
        self._size_bytes += len(piece)
        self.tell(CoreProgress(_RECEIVING, self._size_bytes))

    def finish(self, done: pb.CoreDone | None, request_id: str) -> CoreExport:
        """The file, in its place. Raises Internal if what came is not what the server says it sent."""
        if done is None:
            raise ended_early(request_id)
        if (done.size_bytes, done.sha256) != (self._size_bytes, self._hash.digest()):
            self._clear()
            raise not_whole(request_id)
        note = signature_path(self._path)
        _write_whole(note, done.signature.encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self._path)
        return convert.exported(done, self._path, note)

    def _clear(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._size_bytes, self._hash = 0, hashlib.sha256()


class _Receipt:
    """What the answers to one call say."""

    def __init__(self, receiving: Receiving) -> None:
        self._receiving = receiving
        self._done: pb.CoreDone | None = None

    def take(self, answer: bytes) -> None:
        response = pb.ExportCoreResponse.FromString(answer)
        match response.WhichOneof("part"):
            case "data":
                self._receiving.write(response.data)
            case "progress":
                self._receiving.tell(convert.progress(response.progress))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> CoreExport:
        return self._receiving.finish(self._done, request_id)


def _opened(part: Path) -> BinaryIO:
    """The part, to be read and written on. Only its owner may read it, and only one process writes it."""
    file = os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise BlockingIOError(error.errno, "another process writes it", str(part)) from error
    return file


def _hashed(file: BinaryIO) -> tuple[int, hashlib._Hash]:
    """How many bytes there are, and their hash, which can go on."""
    found, size_bytes = hashlib.sha256(), 0
    while piece := file.read(PIECE_BYTES):
        found.update(piece)
        size_bytes += len(piece)
    return size_bytes, found


def _write_whole(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)

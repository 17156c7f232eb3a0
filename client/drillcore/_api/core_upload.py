"""Uploads a knowledge core from a file, and continues after a lost connection."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final, Self

from drillcore._api.core_data import CoreImport, CoreProgress, to_imported, to_progress
from drillcore._transport.follow import ended_early
from drillcore._transport.resume import FurthestProgress
from drillcore._transport.upload import PIECE_BYTES, Listener, Upload
from drillcore.errors import DrillcoreError
from drillcore_proto.v1 import cores_pb2 as pb

_PATH: Final = "/drillcore_proto.v1.CoreService/ImportCore"


_HASHING, _SENDING = "hashing", "sending"


_EVENT_BYTES: Final = 64 * 1024 * 1024
"""How many bytes to hash between two progress events."""


class CoreUpload:
    """Sends the part of the file that the server does not have.

    The file's hash identifies the upload, so that a later upload of the same file to the same corpus continues it.
    """

    def __init__(
        self,
        path: Path,
        target: pb.ImportCoreTarget,
        request_id: str,
        renew: Callable[[], object],
        on_event: Listener,
    ) -> None:
        self._path = path
        self._target = target
        self._request_id = request_id
        self._furthest = FurthestProgress(renew)
        self._on_event = on_event
        self._ready: Future[int] = Future()

    def __enter__(self) -> Self:
        with self._path.open("rb") as file:
            self._sha256 = self._hashed(iter(lambda: file.read(PIECE_BYTES), b""))
            self._size_bytes = file.tell()
        self._target.upload_id = self._sha256.hex()
        return self

    def __exit__(self, *_: object) -> None:
        """No file is open between the calls."""

    def begin(self, _number: int) -> Upload[CoreImport]:
        self._ready = ready = Future[int]()
        return Upload(
            _PATH,
            self._target,
            (),
            lambda target, _items: self._requests(target, ready),
            lambda _listener: _Receipt(self, ready),
            None,
            self._request_id,
            None,
        )

    def end(self) -> None:
        self._ready.cancel()  # a call that ended before the server was ready sends nothing more

    def starts_over(self, _error: DrillcoreError) -> bool:
        return False

    def tell(self, progress: CoreProgress) -> None:
        self._furthest.reached(progress.stage, progress.size_bytes)
        self._on_event(progress)

    def _hashed(self, pieces: Iterable[bytes]) -> bytes:
        found, size_bytes = hashlib.sha256(), 0
        for piece in pieces:
            found.update(piece)
            size_bytes += len(piece)
            if size_bytes % _EVENT_BYTES == 0:
                self._on_event(CoreProgress(_HASHING, size_bytes))
        return found.digest()

    def _requests(self, target: pb.ImportCoreTarget, ready: Future[int]) -> Iterator[pb.ImportCoreRequest]:
        yield pb.ImportCoreRequest(target=target)
        offset_bytes = ready.result()
        with self._path.open("rb") as file:
            file.seek(offset_bytes)
            while piece := file.read(PIECE_BYTES):
                yield pb.ImportCoreRequest(data=piece)
        yield pb.ImportCoreRequest(end=pb.ImportCoreEnd(size_bytes=self._size_bytes, sha256=self._sha256))


class _Receipt:
    """Collects the answers to one call."""

    def __init__(self, sending: CoreUpload, ready: Future[int]) -> None:
        self._sending = sending
        self._ready = ready
        self._done: pb.ImportCoreDone | None = None

    def take(self, answer: bytes) -> None:
        response = pb.ImportCoreResponse.FromString(answer)
        match response.WhichOneof("part"):
            case "ready":
                self._sending.tell(CoreProgress(_SENDING, response.ready.offset_bytes))
                self._ready.set_result(response.ready.offset_bytes)
            case "progress":
                self._sending.tell(to_progress(response.progress))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> CoreImport:
        if self._done is None:
            raise ended_early(request_id)
        return to_imported(self._done)

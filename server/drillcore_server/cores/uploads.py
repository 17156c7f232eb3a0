"""Receives cores. An interrupted upload is kept for a while, so that its caller can continue where it stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import uuid4

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput, Stale, Unavailable
from drillcore_server.storage.ids import CorpusId, PrincipalId, TenantId
from drillcore_server.storage.sealed_file import SealedFile

UPLOADS_MAX: Final = 32
"""Uploads of all callers together, running and interrupted ones."""
PRINCIPAL_UPLOADS_MAX: Final = 8
"""Uploads of one caller, so that nobody blocks all others."""
UPLOAD_ID_CHARACTERS_MAX: Final = 200


class UploadName(NamedTuple):
    """Identifies an upload. Nobody can continue another caller's upload, or an upload for another corpus."""

    principal: PrincipalId
    tenant: TenantId | None
    corpus: CorpusId
    upload: str


@dataclass(slots=True)
class _Kept:
    file: SealedFile = field(default_factory=SealedFile)
    holder: object | None = None
    """The call that works on the upload; None while it waits for its caller."""
    since: float = 0.0
    """When the upload began to wait."""
    is_whole: bool = False


@dataclass(slots=True)
class Upload:
    """A call's hold on an upload, until another call with the same name takes it over."""

    uploads: CoreUploads
    name: UploadName
    place: UploadName
    """The name under which it is kept. A private name while nobody may take it over."""
    kept: _Kept
    holder: object

    @property
    def file(self) -> SealedFile:
        return self.kept.file

    def write(self, data: bytes) -> None:
        """Raises `Refused` if the upload becomes too large, or if another call has taken it over."""
        if self.kept.is_whole:
            raise Stale(Reason.CORE_CHANGED, "data came after the core was complete; nothing was stored")
        self.uploads.write(self, data)

    def end(self) -> None:
        """Call it when the upload is complete. After that, nobody can take it over.

        Raises `Refused` if another call already has.
        """
        self.uploads.end(self)

    def leave(self) -> None:
        """Keeps it for a caller who comes back."""
        self.uploads.leave(self)

    def drop(self) -> None:
        """Deletes it, unless another call has taken it over."""
        self.uploads.drop(self)


class CoreUploads:
    """All uploads of a server. Safe to use from many threads."""

    def __init__(self, bytes_max: int, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`bytes_max` limits one core; all uploads together may take twice that."""
        self._bytes_max = bytes_max
        self._keep_s = keep_s
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[UploadName, _Kept] = {}

    def begin(self, principal: PrincipalId, tenant: TenantId | None, corpus: CorpusId, upload: str) -> Upload:
        """Returns a new upload, or the one of this name that was interrupted or whose connection seems lost."""
        if len(upload) > UPLOAD_ID_CHARACTERS_MAX:
            message = f"upload_id must have at most {UPLOAD_ID_CHARACTERS_MAX} characters"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="upload_id")
        name = UploadName(principal, tenant, corpus, upload or _private_name())
        with self._lock:
            self._forget_old()
            kept = self._kept.get(name)
            if kept is None:
                self._make_room_of(principal)
                self._make_room(len(self._kept) + 1 - UPLOADS_MAX)
                kept = self._kept[name] = _Kept()
            kept.holder = holder = object()
        return Upload(self, name, name, kept, holder)

    def write(self, upload: Upload, data: bytes) -> None:
        size_bytes = len(data)
        if upload.file.size_bytes + size_bytes > self._bytes_max:
            message = f"the core must have at most {self._bytes_max} bytes (server.core_bytes_max); nothing was stored"
            raise BadInput(Reason.TOO_LARGE, message, field="data")
        with self._lock:
            _check_held(upload)
            while self._size_bytes() + size_bytes > 2 * self._bytes_max:
                self._make_room(1)
            # Nobody can take it over between the check and this: two calls would write into each other's file.
            upload.file.write(data)

    def end(self, upload: Upload) -> None:
        with self._lock:
            _check_held(upload)
            self._move(upload, upload.name._replace(upload=_private_name()))
            upload.kept.is_whole = True

    def leave(self, upload: Upload) -> None:
        with self._lock:
            if upload.kept.holder is not upload.holder:
                return
            upload.kept.holder, upload.kept.since = None, self._clock()
            if upload.name == upload.place or upload.name not in self._kept:
                self._move(upload, upload.name)
            else:
                self._forget([upload.place])

    def drop(self, upload: Upload) -> None:
        with self._lock:
            if upload.kept.holder is upload.holder:
                self._forget([upload.place])

    def _move(self, upload: Upload, place: UploadName) -> None:
        self._kept[place] = self._kept.pop(upload.place)
        upload.place = place

    def close(self) -> None:
        with self._lock:
            for kept in self._kept.values():
                kept.file.close()
            self._kept.clear()

    def _size_bytes(self) -> int:
        return sum(upload.file.size_bytes for upload in self._kept.values())

    def _forget_old(self) -> None:
        before = self._clock() - self._keep_s
        self._forget([name for name, upload in self._kept.items() if upload.holder is None and upload.since < before])

    def _make_room_of(self, principal: PrincipalId) -> None:
        """Makes room for one more upload of a caller: drops one of the caller's own if there are too many."""
        own = [name for name in self._kept if name.principal == principal]
        self._make_room(len(own) + 1 - PRINCIPAL_UPLOADS_MAX, own)

    def _make_room(self, count: int, among: Iterable[UploadName] | None = None) -> None:
        """Drops the uploads that have waited longest. Raises `Unavailable` if too few are waiting."""
        if count <= 0:
            return
        names = self._kept if among is None else among
        waiting = sorted((name for name in names if self._kept[name].holder is None), key=self._since)
        if len(waiting) < count:
            raise Unavailable(Reason.TOO_LARGE, "too many cores are being imported; try again later")
        self._forget(waiting[:count])

    def _since(self, name: UploadName) -> float:
        return self._kept[name].since

    def _forget(self, names: list[UploadName]) -> None:
        for name in names:
            self._kept.pop(name).file.close()


def _check_held(upload: Upload) -> None:
    if upload.kept.holder is not upload.holder:
        raise Unavailable(Reason.CANCELLED, "another call continues this upload; nothing was stored")


def _private_name() -> str:
    """Returns a name that no caller can give."""
    return f"{uuid4()}".ljust(UPLOAD_ID_CHARACTERS_MAX + 1)

"""Indexes on the disk, for a fast start. A snapshot is a cache: what cannot be used is discarded and built anew.

    magic (8 bytes) key number (8) nonce (8), then frames: what they hold is a header and the parts of an index

Vectors tell much of the texts they were made of. So a frame is sealed (AES-256-GCM) under a key of the corpus that is
for snapshots alone: erasing any source of the corpus destroys it, and with it every snapshot that may hold its vectors.
A frame is bound to its index, its number and to being the last, so that nothing can be left out, added or exchanged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from uuid import UUID

import msgspec
import numpy as np
import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from drillcore_server.derived.graph import Graph
from drillcore_server.derived.settings import VectorSettings
from drillcore_server.derived.vector_index import Id, VectorIndex
from drillcore_server.derived.vector_log import BLOCK, VectorLog
from drillcore_server.domain.ids import CorpusNumber, Revision
from drillcore_server.store.keyring import SNAPSHOT_SCOPE, KeyErased, KeyLostError, KeyNumber, Keyring

_MAGIC: Final = b"DRILLIX1"
_NONCE_BYTES: Final = 8
_HEAD_BYTES: Final = len(_MAGIC) + 8 + _NONCE_BYTES
_FRAME_BYTES: Final = 1 << 20
_TAG_BYTES: Final = 16
_LENGTH_BYTES: Final = 4
"""Of the header."""


@dataclass(frozen=True, slots=True)
class IndexName:
    """Which index: of what, in which corpus, made by which embedding model."""

    corpus: CorpusNumber
    kind: str
    model: int

    def __str__(self) -> str:
        return f"{self.corpus}-{self.kind}-{self.model}"


@dataclass(frozen=True, slots=True)
class SavedAt:
    """The revision that an index is of. A store that was restored may have another of the same number."""

    revision: Revision
    record: UUID
    """The audit record of the revision."""


@dataclass(frozen=True, slots=True)
class _Header:
    name: str
    revision: Revision
    record: UUID
    m: int
    ef_construction: int
    dimensions: int
    kept_as: str
    size: int
    count: int
    graph_bytes: int
    gone_since_s: float | None


class UnusableError(Exception):
    """Why a snapshot cannot be used."""


class IndexSnapshots:
    """The snapshots of a server's indexes: one file an index."""

    def __init__(
        self, folder: Path, keyring: Keyring, settings: VectorSettings, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._folder = folder
        self._keyring = keyring
        self._settings = settings
        self._log = log

    def key(self, name: IndexName) -> KeyNumber:
        """To save under. Taken before it is known what to save: whatever is erased later destroys it."""
        (number,) = self._keyring.numbers(name.corpus, [SNAPSHOT_SCOPE])
        return number

    def save(self, name: IndexName, at: SavedAt, index: VectorIndex[Id], number: KeyNumber) -> None:
        """Puts an index in the place of what was saved of it before: all of it, or nothing."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._path(name).with_suffix(f".{os.getpid()}.tmp")
        try:
            with fresh.open("wb") as file:
                self._write(file, name, at, index, number)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path(name))
        except (OSError, KeyErased, KeyLostError) as error:
            fresh.unlink(missing_ok=True)
            self._log.warning("index not saved", index=str(name), error=str(error))

    def load(self, name: IndexName) -> tuple[SavedAt, VectorIndex[Id]] | None:
        """What was saved of an index, if it can be used; else it is removed."""
        try:
            return self.read(name)
        except KeyErased:
            self._log.info("saved index discarded: a source was erased since", index=str(name))
            self._remove(name)
        except (UnusableError, KeyLostError, OSError) as error:
            self.discard(name, str(error))
        return None

    def read(self, name: IndexName) -> tuple[SavedAt, VectorIndex[Id]] | None:
        """What was saved, if anything was. Raises `UnusableError`, `KeyErased` or `KeyLostError`; changes nothing."""
        try:
            with self._path(name).open("rb") as file:
                return self._read(file, name)
        except FileNotFoundError:
            return None

    def discard(self, name: IndexName, reason: str) -> None:
        self._log.warning("saved index discarded, it is built anew", index=str(name), reason=reason)
        self._remove(name)

    def remove_former(self, name: IndexName) -> None:
        """Removes the snapshots of the same index for other models: searches use this one's."""
        for other in self._folder.glob(f"{name.corpus}-{name.kind}-*.index"):
            if other != self._path(name):
                with contextlib.suppress(OSError):
                    other.unlink(missing_ok=True)

    def remove_erased(self, corpora: Iterable[CorpusNumber]) -> None:
        """Removes what nobody can open any more, since a source of its corpus was erased."""
        for number in corpora:
            for path in self._folder.glob(f"{number}-*"):
                with contextlib.suppress(OSError):
                    if self._is_erased(path):
                        path.unlink(missing_ok=True)

    def _is_erased(self, path: Path) -> bool:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        return self._keyring.is_erased(KeyNumber(int.from_bytes(head[len(_MAGIC) :][:8], "big")))

    def _remove(self, name: IndexName) -> None:
        with contextlib.suppress(OSError):
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: IndexName) -> Path:
        return self._folder / f"{name}.index"

    def _write(self, file: IO[bytes], name: IndexName, at: SavedAt, index: VectorIndex[Id], number: KeyNumber) -> None:
        nonce = os.urandom(_NONCE_BYTES)
        file.write(_MAGIC + number.to_bytes(8, "big") + nonce)
        sealed = _Sealed(self._keyring.cipher(number), nonce, str(name).encode())
        for frame in sealed.frames(self._parts(name, at, index)):
            file.write(frame)

    def _parts(self, name: IndexName, at: SavedAt, index: VectorIndex[Id]) -> Iterator[bytes]:
        log = index.log
        with _graph_file(log.graph) as (graph, graph_bytes):
            size = log.size
            header = _Header(
                str(name),
                at.revision,
                at.record,
                self._settings.m,
                self._settings.ef_construction,
                log.dimensions,
                log.kept_as.str,
                size,
                len(index),
                graph_bytes,
                log.gone_since_s,
            )
            encoded = msgspec.msgpack.encode(header)
            yield len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded
            members = np.zeros(size, np.bool_)
            members[: len(index.members)] = index.members
            yield members.tobytes()
            for start in range(0, size, BLOCK):
                labels = np.arange(start, min(start + BLOCK, size))
                yield log.ids(labels).tobytes()
                yield log.rows(labels).tobytes()
            for start in range(0, graph_bytes, _FRAME_BYTES):
                yield os.pread(graph, _FRAME_BYTES, start)

    def _read(self, file: IO[bytes], name: IndexName) -> tuple[SavedAt, VectorIndex[Id]]:
        head = file.read(_HEAD_BYTES)
        if len(head) < _HEAD_BYTES or head[:8] != _MAGIC:
            raise UnusableError("it is no index")
        number, nonce = KeyNumber(int.from_bytes(head[8:16], "big")), head[16:]
        content = _Content(_Sealed(self._keyring.cipher(number), nonce, str(name).encode()).opened(file))
        header = self._header(content, name)
        members = np.frombuffer(content.take(header.size), np.bool_)
        log = VectorLog(header.dimensions, np.dtype(header.kept_as))
        for start in range(0, header.size, BLOCK):
            count = min(BLOCK, header.size - start)
            ids = np.frombuffer(content.take(count * 16), np.uint8).reshape(count, 16)
            rows = np.frombuffer(content.take(count * header.dimensions * log.kept_as.itemsize), log.kept_as)
            log.add(ids, rows.reshape(count, header.dimensions), packed=bool(header.graph_bytes))
        log.gone_since_s = header.gone_since_s
        if header.graph_bytes:
            log.graph = self._graph(content, header)
        content.end()
        index = VectorIndex[Id](log, members, header.count, self._settings)
        return SavedAt(header.revision, header.record), index

    def _header(self, content: _Content, name: IndexName) -> _Header:
        encoded = content.take(int.from_bytes(content.take(_LENGTH_BYTES), "big"))
        try:
            header = msgspec.msgpack.decode(encoded, type=_Header)
        except msgspec.MsgspecError as error:
            raise UnusableError("its header is another version's") from error
        if header.name != str(name):
            raise UnusableError("it is another index")
        if (header.m, header.ef_construction) != (self._settings.m, self._settings.ef_construction):
            raise UnusableError("it was built with other settings")
        return header

    def _graph(self, content: _Content, header: _Header) -> Graph:
        file = os.memfd_create("drillcore-graph")
        try:
            left = header.graph_bytes
            while left:
                left -= os.write(file, content.take(min(left, _FRAME_BYTES)))
            graph = Graph.load(file, header.dimensions, self._settings)
        except RuntimeError as error:
            raise UnusableError(str(error)) from error
        finally:
            os.close(file)
        if graph.count > header.size:
            raise UnusableError("its graph has more vectors than there are")
        return graph


@contextlib.contextmanager
def _graph_file(graph: Graph | None) -> Iterator[tuple[int, int]]:
    """The graph in memory, as a file, and its size: plain vectors never get to the disk."""
    if graph is None:
        yield -1, 0
        return
    file = graph.save()
    try:
        yield file, os.fstat(file).st_size
    finally:
        os.close(file)


class _Sealed:
    """Frames of one file. Each is sealed once under its nonce."""

    def __init__(self, cipher: AESGCM, nonce: bytes, name: bytes) -> None:
        self._cipher = cipher
        self._nonce = nonce
        self._name = name

    def frames(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        number, waiting = 0, bytearray()
        for part in parts:
            waiting += part
            while len(waiting) > _FRAME_BYTES:
                yield self._seal(number, bytes(waiting[:_FRAME_BYTES]), is_last=False)
                del waiting[:_FRAME_BYTES]
                number += 1
        yield self._seal(number, bytes(waiting), is_last=True)

    def opened(self, file: IO[bytes]) -> Iterator[bytes]:
        """What the frames hold. Raises `UnusableError` where one is not what was written there."""
        number, frame = 0, file.read(_FRAME_BYTES + _TAG_BYTES)
        while frame:
            following = file.read(_FRAME_BYTES + _TAG_BYTES)
            try:
                yield self._cipher.decrypt(self._at(number), frame, self._bound_to(is_last=not following))
            except (InvalidTag, ValueError) as error:
                raise UnusableError(f"its part {number} is damaged, or cut off") from error
            number, frame = number + 1, following

    def _seal(self, number: int, data: bytes, *, is_last: bool) -> bytes:
        return self._cipher.encrypt(self._at(number), data, self._bound_to(is_last=is_last))

    def _at(self, number: int) -> bytes:
        return self._nonce + number.to_bytes(4, "big")

    def _bound_to(self, *, is_last: bool) -> bytes:
        return _MAGIC + bytes([is_last]) + self._name


class _Content:
    """Frames as one stream."""

    def __init__(self, frames: Iterator[bytes]) -> None:
        self._frames = frames
        self._waiting = bytearray()

    def take(self, size: int) -> bytes:
        while len(self._waiting) < size:
            frame = next(self._frames, None)
            if frame is None:
                raise UnusableError("it is cut off")
            self._waiting += frame
        taken = bytes(self._waiting[:size])
        del self._waiting[:size]
        return taken

    def end(self) -> None:
        if self._waiting or next(self._frames, None) is not None:
            raise UnusableError("there is more in it than it says")

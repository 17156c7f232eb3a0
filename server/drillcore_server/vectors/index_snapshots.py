"""Saves indexes on disk for a fast start. A snapshot is a cache: if it cannot be used, it is discarded and built anew.

    magic (8 bytes) key number (8) nonce (8), then frames that contain a header and the parts of an index

Vectors reveal much of the texts they were made from. So frames are sealed (AES-256-GCM) under a key of the corpus that
only snapshots use: erasing any source of the corpus destroys the key, and with it every snapshot that may contain its
vectors. A frame is bound to its index, to its number and to being the last or not, so that nobody can omit, add or
exchange one.
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

from drillcore_server.storage.ids import CorpusNumber, Revision
from drillcore_server.storage.keyring import SNAPSHOT_SCOPE, KeyErased, KeyLostError, KeyNumber, Keyring
from drillcore_server.vectors.hnsw_graph import Graph
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import Id, VectorIndex
from drillcore_server.vectors.vector_log import BLOCK, VectorLog

_MAGIC: Final = b"DRILLIX2"
_NONCE_BYTES: Final = 8
_HEAD_BYTES: Final = len(_MAGIC) + 8 + _NONCE_BYTES
_FRAME_BYTES: Final = 1 << 20
_TAG_BYTES: Final = 16
_LENGTH_BYTES: Final = 4
"""The size of the header's length."""


@dataclass(frozen=True, slots=True)
class IndexName:
    """Names an index: its corpus, what its vectors are of, and the embedding model."""

    corpus: CorpusNumber
    kind: str
    model: int

    def __str__(self) -> str:
        return f"{self.corpus}-{self.kind}-{self.model}"


@dataclass(frozen=True, slots=True)
class SavedAt:
    """The revision of an index. A restored store may have another revision of the same number."""

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
    """Says why a snapshot cannot be used."""


class IndexSnapshots:
    """The snapshots of a server's indexes: one file for each index."""

    def __init__(
        self, folder: Path, keyring: Keyring, settings: VectorSettings, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._folder = folder
        self._keyring = keyring
        self._settings = settings
        self._log = log

    def key(self, name: IndexName) -> KeyNumber:
        """Returns the key to save under. Call it before deciding what to save: a later erasure destroys the key."""
        (number,) = self._keyring.numbers(name.corpus, [SNAPSHOT_SCOPE])
        return number

    def save(self, name: IndexName, at: SavedAt, index: VectorIndex[Id], number: KeyNumber) -> None:
        """Replaces the saved index: all of it, or nothing."""
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
        """Returns the saved index if it can be used; else removes it."""
        try:
            return self.read(name)
        except KeyErased:
            self._log.info("saved index discarded: a source was erased since", index=str(name))
            self._remove(name)
        except (UnusableError, KeyLostError, OSError) as error:
            self.discard(name, str(error))
        return None

    def read(self, name: IndexName) -> tuple[SavedAt, VectorIndex[Id]] | None:
        """Returns what was saved, if anything. Raises `UnusableError`, `KeyErased` or `KeyLostError`;
        changes nothing."""
        try:
            with self._path(name).open("rb") as file:
                return self._read(file, name)
        except FileNotFoundError:
            return None

    def discard(self, name: IndexName, reason: str) -> None:
        self._log.warning("saved index discarded, building it anew", index=str(name), reason=reason)
        self._remove(name)

    def remove_former(self, name: IndexName) -> None:
        """Removes the snapshots of the same index for other models, which searches do not use any more."""
        for other in self._folder.glob(f"{name.corpus}-{name.kind}-*.index"):
            if other != self._path(name):
                with contextlib.suppress(OSError):
                    other.unlink(missing_ok=True)

    def remove_erased(self, corpora: Iterable[CorpusNumber]) -> None:
        """Removes snapshots that nobody can open any more because a source of their corpus was erased."""
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
        graph = log.graph.save() if log.graph is not None else np.empty(0, np.uint8)
        size = log.size  # read after the graph, which has no more vectors than the log
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
            len(graph),
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
        for start in range(0, len(graph), _FRAME_BYTES):
            yield graph[start : start + _FRAME_BYTES].tobytes()

    def _read(self, file: IO[bytes], name: IndexName) -> tuple[SavedAt, VectorIndex[Id]]:
        head = file.read(_HEAD_BYTES)
        if len(head) < _HEAD_BYTES or head[:8] != _MAGIC:
            raise UnusableError("it is not an index")
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
            raise UnusableError("its header has another version") from error
        if header.name != str(name):
            raise UnusableError("it is another index")
        if (header.m, header.ef_construction) != (self._settings.m, self._settings.ef_construction):
            raise UnusableError("it was built with other settings")
        return header

    def _graph(self, content: _Content, header: _Header) -> Graph:
        saved = np.empty(header.graph_bytes, np.uint8)
        for start in range(0, header.graph_bytes, _FRAME_BYTES):
            stop = min(start + _FRAME_BYTES, header.graph_bytes)
            saved[start:stop] = np.frombuffer(content.take(stop - start), np.uint8)
        try:
            graph = Graph.load(saved, header.dimensions, self._settings)
        except RuntimeError as error:
            raise UnusableError(str(error)) from error
        if graph.count > header.size:
            raise UnusableError("its graph has more vectors than there are")
        return graph


class _Sealed:
    """Seals and opens the frames of one file. Each frame has a nonce of its own."""

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
        """Yields the content of the frames. Raises `UnusableError` for a frame that is not what was written there."""
        number, frame = 0, file.read(_FRAME_BYTES + _TAG_BYTES)
        while frame:
            following = file.read(_FRAME_BYTES + _TAG_BYTES)
            try:
                yield self._cipher.decrypt(self._at(number), frame, self._bound_to(is_last=not following))
            except (InvalidTag, ValueError) as error:
                raise UnusableError(f"its part {number} is damaged or truncated") from error
            number, frame = number + 1, following

    def _seal(self, number: int, data: bytes, *, is_last: bool) -> bytes:
        return self._cipher.encrypt(self._at(number), data, self._bound_to(is_last=is_last))

    def _at(self, number: int) -> bytes:
        return self._nonce + number.to_bytes(4, "big")

    def _bound_to(self, *, is_last: bool) -> bytes:
        return _MAGIC + bytes([is_last]) + self._name


class _Content:
    """Reads frames as one stream."""

    def __init__(self, frames: Iterator[bytes]) -> None:
        self._frames = frames
        self._waiting = bytearray()

    def take(self, size: int) -> bytes:
        while len(self._waiting) < size:
            frame = next(self._frames, None)
            if frame is None:
                raise UnusableError("it is truncated")
            self._waiting += frame
        taken = bytes(self._waiting[:size])
        del self._waiting[:size]
        return taken

    def end(self) -> None:
        if self._waiting or next(self._frames, None) is not None:
            raise UnusableError("it is longer than its header says")

"""A line to a server that is cut after some number of bytes, as often as a test asks."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_PIECE_BYTES = 16 * 1024


@dataclass
class Line:
    """Passes bytes on in both directions."""

    to: tuple[str, int]
    cuts: list[int] = field(default_factory=list)
    """After how many bytes, of both directions, each of the next connections is cut. Later connections stay."""
    cut: int = 0
    """How many connections were cut."""
    before_cut: Callable[[], object] = lambda: None
    """May wait until the server has handled what it got: a lost connection takes unhandled bytes with it."""
    _listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listening.accept()
                _Connection(self, near, socket.create_connection(self.to))

    def close(self) -> None:
        self._listening.close()


class _Connection:
    def __init__(self, line: Line, near: socket.socket, far: socket.socket) -> None:
        self._line, self._near, self._far = line, near, far
        self._left = line.cuts.pop(0) if line.cuts else None
        self._lock = threading.Lock()
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the other direction has closed both
            while piece := source.recv(_PIECE_BYTES):
                sink.sendall(piece)
                if self._is_spent(len(piece)):
                    self._line.before_cut()
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _is_spent(self, size_bytes: int) -> bool:
        with self._lock:
            if self._left is None:
                return False
            before, self._left = self._left, self._left - size_bytes
            if before > 0 >= self._left:
                self._line.cut += 1
            return self._left <= 0


@contextlib.contextmanager
def line_to(address: str, cuts: list[int], before_cut: Callable[[], object] = lambda: None) -> Iterator[Line]:
    host, port = address.split(":")
    line = Line((host, int(port)), cuts, before_cut=before_cut)
    thread = threading.Thread(target=line.serve, daemon=True)
    thread.start()
    try:
        yield line
    finally:
        line._listening.shutdown(socket.SHUT_RDWR)
        line.close()
        thread.join()

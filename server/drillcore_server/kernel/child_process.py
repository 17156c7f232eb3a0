"""What the server's child processes share: they end with it, leave no core file, and report errors without content.

They exchange messages with the server over `multiprocessing.connection.Connection`, which sends a length before each.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import traceback


def leave_stop_signals_to_the_server() -> None:
    """Ignores the signals with which a terminal or a supervisor stops the server: the server ends its children."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def leave_no_core_file() -> None:
    """A core file would contain documents or vectors in the clear."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_when_closed(descriptor: int) -> None:
    """Makes the kernel end this process with SIGIO when the server closes its end of the descriptor, or dies.

    A thread could not watch it: native code that holds the interpreter's lock would keep the thread from running.
    Raises `EOFError` if the other end is closed already.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([descriptor], [], [], 0)[0]:
        raise EOFError


def place_of(error: BaseException) -> str:
    """Says where an error was raised, but not its message, which might contain content."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {os.path.basename(frame.filename)}:{frame.lineno}"


def exit_text(exit_code: int | None) -> str:
    """Names what ended a process: a signal, or an exit code."""
    return signal.Signals(-exit_code).name if exit_code is not None and exit_code < 0 else f"exit code {exit_code}"

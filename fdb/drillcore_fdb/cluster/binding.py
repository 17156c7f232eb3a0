"""FoundationDB's Python binding: loads its library, runs its one network thread per process, translates its errors."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fdb

from drillcore_fdb.errors import ClusterUnreachableError, EngineError, InvalidUseError, from_code

API_VERSION = 730

NetworkOptions = tuple[tuple[str, str | bytes], ...]
"""Names as in the binding's `fdb.options.set_NAME`, with their values, in the order they must be set."""

_LIBRARY = "libfdb_c.dylib" if sys.platform == "darwin" else "libfdb_c.so"
_HOW_TO_INSTALL = (
    "Install the FoundationDB client package of the cluster's version, 7.3 (foundationdb-clients), or use the embedded "
    "engine, which needs none."
)


class Network:
    """The binding's library and network thread: loaded and started once per process, never stopped before its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: NetworkOptions = ()

    def open_database(self, cluster_file: Path, options: NetworkOptions) -> fdb.Database:
        """The database of a cluster file. It connects in the background, so the cluster may not have answered yet.

        Raises `ClusterUnreachableError` without a usable library or file, and `InvalidUseError` if the process
        already runs its network with other options.
        """
        with self._lock:
            _load()
            self._configure(options)
            try:
                return fdb.open(str(cluster_file))
            except fdb.FDBError as error:
                raise ClusterUnreachableError(
                    f"FoundationDB cannot open the cluster of {cluster_file}: {translate(error)}"
                ) from error

    def _configure(self, options: NetworkOptions) -> None:
        # The binding does not say whether its network runs, but the thread it keeps does.
        if fdb.impl._network_thread is None:
            _set_options(options)
            self._options = options
        elif options != self._options:
            names = ", ".join(sorted({name for name, _ in set(options) ^ set(self._options)}))
            raise InvalidUseError(
                2009,
                f"FoundationDB's network is already running in this process with other options ({names}). All engines "
                "of a process share one network: give them the same TLS, knob, trace and client library settings",
            )


NETWORK = Network()
"""One per process because FoundationDB allows no more."""


@contextmanager
def translated() -> Iterator[None]:
    """Converts the binding's errors to those of `drillcore_fdb.errors`."""
    try:
        yield
    except fdb.FDBError as error:
        raise translate(error) from error


def translate(error: fdb.FDBError) -> EngineError:
    return from_code(error.code, error.description.decode())


def client_version() -> str:
    """The version of the loaded client library, as in 7.3.79."""
    get_client_version = fdb.impl._capi.fdb_get_client_version
    get_client_version.argtypes = []
    get_client_version.restype = ctypes.c_char_p
    # The library answers "version,source,protocol".
    return str(get_client_version().decode().split(",")[0])


def _load() -> None:
    if fdb.is_api_version_selected():
        _require_our_api_version()
        return
    try:
        fdb.api_version(API_VERSION)
    except (RuntimeError, AttributeError) as error:
        # RuntimeError: the library refuses the version. AttributeError: it lacks a function of that version.
        raise ClusterUnreachableError(
            f"FoundationDB's client library does not fit its Python binding, which needs API version {API_VERSION}: "
            f"{error}. {_HOW_TO_INSTALL}"
        ) from error
    except Exception as error:  # the binding raises bare exceptions here
        # What the loader said is more telling than the binding's own "unable to locate".
        cause = error.__context__ or error
        raise ClusterUnreachableError(
            f"FoundationDB's client library {_LIBRARY} cannot be loaded: {cause}. {_HOW_TO_INSTALL}"
        ) from error


def _require_our_api_version() -> None:
    if fdb.get_api_version() != API_VERSION:
        raise InvalidUseError(
            2201,
            f"This process has already selected FoundationDB API version {fdb.get_api_version()}, "
            f"Drillcore needs {API_VERSION}: run it in a process of its own",
        )


def _set_options(options: NetworkOptions) -> None:
    for name, value in options:
        try:
            getattr(fdb.options, f"set_{name}")(value)
        except fdb.FDBError as error:
            # The value stays out of the message: it may be a password.
            raise InvalidUseError(
                error.code, f"FoundationDB refused the network option {name}: {translate(error).message}"
            ) from error

"""Options of the commands that open a store, and how these commands open it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import ClusterUnreachableError, DiskFullError, EngineError, StoreCorruptError, StoreInUseError
from drillcore_fdb.format import StoreHeader, find_header
from drillcore_formats.plugins import CommandError, Session
from drillcore_server.app.config import EngineKind, Settings, load_settings
from drillcore_server.app.factories import open_engine
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store

F = TypeVar("F", bound=Callable[..., Any])
_REASONS = {
    StoreInUseError: "STORE_IN_USE",
    StoreCorruptError: "STORE_CORRUPT",
    ClusterUnreachableError: "CLUSTER_UNREACHABLE",
    DiskFullError: "STORE_FULL",
}
DIRECTORY = click.Path(file_okay=False, path_type=Path)


def engine_options(command: F) -> F:
    """Options that say which store to use."""
    for option in (
        click.option("--cluster-file", type=click.Path(dir_okay=False, path_type=Path), help="FoundationDB's file."),
        click.option("--data-dir", type=DIRECTORY, help="Directory of the embedded store.  [default: drillcore-data]"),
        click.option("--engine", "kind", type=click.Choice([kind.value for kind in EngineKind]), help="Which engine."),
    ):
        command = option(command)
    return command


def store_settings(
    session: Session, kind: str | None, data_dir: Path | None, cluster_file: Path | None, **more: Any
) -> Settings:
    overrides = {
        "engine.kind": kind,
        "engine.data_dir": data_dir,
        "engine.cluster.cluster_file": cluster_file,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return load_settings(session.named_file, session.environment, overrides)


@contextmanager
def store_errors() -> Iterator[None]:
    """Turns a failure of the engine into a message for people."""
    try:
        yield
    except EngineError as error:
        reasons = (name for kind, name in _REASONS.items() if isinstance(error, kind))
        raise CommandError(next(reasons, "STORE_UNAVAILABLE"), error.message) from error


def must_exist(settings: Settings) -> None:
    """Raises `CommandError` if there is no embedded store: looking at one must not make it."""
    path = settings.engine.data_dir
    if settings.engine.kind is EngineKind.EMBEDDED and not (path / "engine.json").exists():
        raise CommandError("STORE_NOT_FOUND", f"there is no store in {path}; --data-dir says where it is", exit_code=2)


def no_store(settings: Settings) -> CommandError:
    place = "/".join(settings.engine.store_path)
    return CommandError("STORE_NOT_FOUND", f"there is no store in the directory {place}", exit_code=2)


@contextmanager
def existing_store(settings: Settings) -> Iterator[tuple[Engine, Keyspace, StoreHeader]]:
    """Opens the store that the settings name, and never makes one. Raises `CommandError` if there is none."""
    must_exist(settings)
    with store_errors():
        opened = open_engine(settings.engine)
        try:
            if find_header(opened, settings.engine.store_path) is None:
                raise no_store(settings)
            directories, header = open_store(opened, settings.engine.store_path)
            yield opened, Keyspace(directories), header
        finally:
            opened.close()

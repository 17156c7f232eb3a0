"""The checks of `drillcore doctor` on a server's machine: settings, engine, data directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from drillcore_fdb import embedded
from drillcore_fdb.errors import EngineError, StoreInUseError
from drillcore_fdb.format import find_header
from drillcore_formats.plugins import Check, Status
from drillcore_formats.settings import SettingsError
from drillcore_server.app.config import EngineKind, EngineSettings, load_settings
from drillcore_server.app.factories import open_engine
from drillcore_server.identity.bearer_tokens import FILE_NAME

_FREE_BYTES_MIN = 1 << 30


def checks(environment: Mapping[str, str], file: Path | None) -> Iterator[Check]:
    try:
        settings = load_settings(file, environment)
    except SettingsError as error:
        yield Check("server settings", Status.FAIL, str(error), "correct or remove it")
        return
    yield Check(
        "server settings", Status.OK, f"{settings.engine.kind.value} engine, listens on {settings.server.listen}"
    )
    if settings.engine.kind is EngineKind.CLUSTER:
        yield _cluster(settings.engine)
    else:
        yield from _embedded(settings.engine)


def _cluster(settings: EngineSettings) -> Check:
    try:
        engine = open_engine(settings)
    except EngineError as error:
        return Check("cluster", Status.FAIL, error.message, "set up what the message says is missing")
    try:
        header = find_header(engine, settings.store_path)
        if header is None:
            place = "/".join(settings.store_path)
            message = f"reachable, no store in the directory {place} yet; the first `drillcore serve` makes one"
            return Check("cluster", Status.OK, message)
        details = tuple(f"{name} = {value}" for name, value in engine.describe().items())
        return Check("cluster", Status.OK, f"reachable, store format {header.format_version}", details=details)
    except EngineError as error:
        return Check("cluster", Status.FAIL, error.message, "the message says what is wrong")
    finally:
        engine.close()


def _embedded(settings: EngineSettings) -> Iterator[Check]:
    path = settings.data_dir
    if not (path / "engine.json").exists():
        yield Check("data directory", Status.OK, f"{path} has no store yet; the first `drillcore serve` makes one")
        return
    yield _permissions(path)
    yield _room(path)
    yield _soundness(path)


def _permissions(path: Path) -> Check:
    token = path / FILE_NAME
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return Check(
            "data directory", Status.FAIL, f"this user cannot write to {path}", f"chown it to uid {os.getuid()}"
        )
    if token.exists() and token.stat().st_mode & 0o077:
        return Check("data directory", Status.FAIL, f"others may read {token}", f"chmod 600 {token}")
    return Check("data directory", Status.OK, str(path))


def _room(path: Path) -> Check:
    free = shutil.disk_usage(path).free
    if free < _FREE_BYTES_MIN:
        return Check(
            "disk", Status.WARN, f"only {free >> 20} MiB free beside the store", "free some space, or writes will fail"
        )
    return Check("disk", Status.OK, f"{free >> 30} GiB free beside the store")


def _soundness(path: Path) -> Check:
    try:
        problems = embedded.verify(path)
    except StoreInUseError as error:
        return Check("store", Status.OK, f"in use, as it should be: {error.message.split(';')[0]}")
    except EngineError as error:
        return Check("store", Status.FAIL, error.message, "the message says what is wrong")
    if problems:
        return Check("store", Status.FAIL, f"damaged: {problems[0]}", "restore it from a backup", tuple(problems))
    return Check("store", Status.OK, "every page of its file is sound; not in use")

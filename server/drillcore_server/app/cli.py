"""Commands that need the server's packages: `drillcore serve`, `engine`, `fsck`, `demo`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from drillcore_fdb import embedded
from drillcore_fdb.directory_sizes import DirectorySize, directory_sizes
from drillcore_fdb.engine import Engine
from drillcore_formats.plugins import Session
from drillcore_server.app.config import EngineKind, Settings
from drillcore_server.app.demo import run_demo
from drillcore_server.app.factories import open_engine, open_keyring
from drillcore_server.app.invitation import Invitation, SealedInvitation
from drillcore_server.app.join import NewFiles, accept, check_settings, keep_keys, open_cluster
from drillcore_server.app.main import Server
from drillcore_server.app.passphrase import obtain_passphrase, passphrase_option
from drillcore_server.app.stop_signals import StopSignals
from drillcore_server.app.store_options import (
    DIRECTORY,
    engine_options,
    existing_store,
    must_exist,
    no_store,
    store_errors,
    store_settings,
)
from drillcore_server.facts.checks import SavedIndexes
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.identity.bearer_tokens import FILE_NAME
from drillcore_server.kernel.telemetry import LogFormat, make_logger


@click.command()
@engine_options
@click.option("--listen", help="HOST:PORT to answer on.  [default: 127.0.0.1:7600]")
@click.option("--metrics-listen", help="HOST:PORT for Prometheus, empty for none.  [default: 127.0.0.1:7601]")
@click.option("--log-format", type=click.Choice([form.value for form in LogFormat]), help="[default: json]")
@click.option(
    "--join",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take the keys of the store from an invitation (drillcore cluster invite).",
)
@passphrase_option
@click.pass_obj
def serve(
    session: Session,
    kind: str | None,
    data_dir: Path | None,
    cluster_file: Path | None,
    listen: str | None,
    metrics_listen: str | None,
    log_format: str | None,
    join: Path | None,
    passphrase_file: Any,
) -> None:
    """Run a server until Ctrl-C or SIGTERM. It finishes the calls under way first.

    \b
    Examples:
      drillcore serve --data-dir ./data
      drillcore serve --engine cluster --cluster-file /etc/foundationdb/fdb.cluster
      drillcore serve --engine cluster --join invitation.json

    On its first start, if the settings name no callers, it makes an operator's token in DATA-DIR/operator.token.
    With --json it prints one document when it is ready: {"serving": {"port", "token_file"}}.
    """
    settings = store_settings(
        session,
        kind,
        data_dir,
        cluster_file,
        server__listen=listen,
        server__metrics_listen=metrics_listen,
        server__log_format=log_format,
    )
    invitation = None if join is None else _invitation(session, settings, join, passphrase_file)
    stop = StopSignals()
    with store_errors(), NewFiles() as files, _opened(settings, invitation, files) as engine:
        server = Server(settings, engine, make_logger(settings.server.log_format))
        try:
            port = server.start()
        except BaseException:
            server.close()
            raise
        files.keep()
        token_file = settings.engine.data_dir / FILE_NAME
        is_used = not settings.server.tokens and token_file.exists()
        session.emit({"serving": {"port": port, "token_file": token_file if is_used else None}})
        stop.wait()
        server.stop()


def _invitation(session: Session, settings: Settings, file: Path, passphrase_file: Any) -> Invitation:
    check_settings(settings)
    sealed = SealedInvitation.read(file, datetime.now(UTC))
    return accept(settings, sealed, obtain_passphrase(session, passphrase_file))


@contextmanager
def _opened(settings: Settings, invitation: Invitation | None, files: NewFiles) -> Iterator[Engine]:
    """The engine of the settings. With an invitation, its keys are there and have been checked."""
    engine = open_engine(settings.engine) if invitation is None else open_cluster(settings, invitation, files)
    try:
        if invitation is not None:
            keep_keys(settings, invitation, engine, files)
        yield engine
    finally:
        engine.close()


@click.group()
def engine() -> None:
    """Inspect and maintain the store itself."""


@engine.command()
@engine_options
@click.pass_obj
def info(session: Session, kind: str | None, data_dir: Path | None, cluster_file: Path | None) -> None:
    """Show the engine of the store, its format and its size.

    An embedded store must not be in use: ask a running server with `drillcore doctor`.
    """
    settings = store_settings(session, kind, data_dir, cluster_file)
    with existing_store(settings) as (opened, _, header):
        facts = {**opened.describe(), "format_version": header.format_version, "store_id": str(header.store_id)}
    session.emit(facts, _facts(facts))


@engine.command()
@engine_options
@click.pass_obj
def directories(session: Session, kind: str | None, data_dir: Path | None, cluster_file: Path | None) -> None:
    """List the directories of the store, with the keys and bytes in each.

    The figures of a directory include those of the directories below it. Bytes are those of keys and values, as they
    are stored. An embedded store must not be in use. On a cluster, this runs beside the servers and reads every key.
    """
    settings = store_settings(session, kind, data_dir, cluster_file)
    must_exist(settings)
    path = settings.engine.store_path
    with store_errors():
        opened = open_engine(settings.engine)
        try:
            sizes = directory_sizes(opened, path)
        finally:
            opened.close()
    if not sizes:
        raise no_store(settings)
    store, *below = sizes
    listed = [
        {"name": "/".join(size.path), "prefix": size.prefix.hex(), "keys": size.keys, "bytes": size.size_bytes}
        for size in below
    ]
    facts = {"store": "/".join(path), "keys": store.keys, "bytes": store.size_bytes, "directories": listed}
    session.emit(facts, _tree("/".join(path), sizes))


@engine.command()
@click.option("--data-dir", type=DIRECTORY, help="Directory of the embedded store.  [default: drillcore-data]")
@click.pass_obj
def compact(session: Session, data_dir: Path | None) -> None:
    """Return unused space of an embedded store to the disk. Stop the server first."""
    settings = store_settings(session, EngineKind.EMBEDDED.value, data_dir, None)
    must_exist(settings)
    with store_errors():
        before, after = embedded.compact(settings.engine.data_dir)
    session.emit({"before_bytes": before, "after_bytes": after}, f"{before:,} bytes before, {after:,} after")


@engine.command()
@click.option("--data-dir", type=DIRECTORY, help="Directory of the embedded store.  [default: drillcore-data]")
@click.pass_obj
@click.pass_context
def check(context: click.Context, session: Session, data_dir: Path | None) -> None:
    """Check every page of an embedded store's file. Stop the server first. Exit code 1 if anything is wrong.

    The file is read byte by byte and not opened as a store, so this is safe for damaged files too.
    """
    settings = store_settings(session, EngineKind.EMBEDDED.value, data_dir, None)
    must_exist(settings)
    with store_errors():
        problems = embedded.verify(settings.engine.data_dir)
    verdict = f"{len(problems)} problems: restore the store from a backup" if problems else "the file is sound"
    session.emit({"ok": not problems, "problems": problems}, verdict, *problems)
    context.exit(1 if problems else 0)


@click.command()
@engine_options
@click.pass_obj
@click.pass_context
def fsck(
    context: click.Context, session: Session, kind: str | None, data_dir: Path | None, cluster_file: Path | None
) -> None:
    """Check that the nodes and indexes of every corpus agree. Exit code 1 if they do not.

    An embedded store must not be in use. On a cluster, fsck runs beside the servers. It changes nothing.
    """
    settings = store_settings(session, kind, data_dir, cluster_file)
    with existing_store(settings) as (opened, keys, header), open_keyring(settings.engine, opened) as keyring:
        saved = SavedIndexes(settings.vectors.folder(settings.engine.data_dir), settings.vectors)
        report = Fsck(opened, keys, keyring, header.store_id, saved).run()
    verdict = f"{report.corpora} corpora, {report.nodes:,} nodes, {len(report.problems)} problems"
    session.emit(
        {
            "ok": not report.problems,
            "corpora": report.corpora,
            "nodes": report.nodes,
            "problems": report.problems,
            "notes": report.notes,
        },
        verdict,
        *report.problems,
        *report.notes,
    )
    context.exit(1 if report.problems else 0)


@click.command()
@click.option("--data-dir", type=DIRECTORY, default=Path(".data/demo"), show_default=True, help="Where to keep it.")
@click.option("--stay/--no-stay", default=None, help="Keep serving afterwards.  [default: only in a terminal]")
@click.pass_obj
def demo(session: Session, data_dir: Path, stay: bool | None) -> None:
    """Start a server, load a small sample and show a session with it."""
    with store_errors():
        facts = run_demo(data_dir, stay=sys.stdout.isatty() if stay is None else stay, quiet=session.json)
    session.emit(facts)


def _facts(facts: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    return table


def _tree(store: str, sizes: Sequence[DirectorySize]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("directory")
    table.add_column("keys", justify="right")
    table.add_column("bytes", justify="right")
    for size in sizes:
        name = "  " * len(size.path) + (size.path[-1] if size.path else store)
        table.add_row(name, f"{size.keys:,}", f"{size.size_bytes:,}")
    return table

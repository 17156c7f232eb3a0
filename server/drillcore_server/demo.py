"""A first session with a server: started, loaded with a sample, called with the command line, shown as it happens."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import click

from drillcore import AlreadyExists, Client
from drillcore.audit.keys import KeyChain
from drillcore.settings import SettingsError
from drillcore_server.auth.operator_token import FILE_NAME
from drillcore_server.config import EngineSettings, ServerSettings, Settings
from drillcore_server.engines import open_engine
from drillcore_server.logs import make_logger
from drillcore_server.main import Server
from drillcore_server.stop_signals import StopSignals

_CORPUS = "21-cfr-11"
_QUESTION = "Who is accountable for actions under an electronic signature?"

_LETTER = (
    "Ann Example of 12 Sample Street has asked the sponsor on 3 May 2026 to forget her address and her diagnosis.\n"
)
_ABOUT_THE_LETTER = "Who asked the sponsor to forget an address?"


@dataclass(frozen=True, slots=True)
class _Shown:
    command: str
    output: str
    exit_code: int


def run_demo(data_dir: Path, *, stay: bool, quiet: bool) -> dict[str, Any]:
    """Shows the session, then keeps serving if `stay`, until it is told to stop. What was done, for --json."""
    say = (lambda _text: None) if quiet else click.echo
    with _serving(data_dir) as port:
        flags = _load_sample(port, data_dir)
        say(f"A server is running on 127.0.0.1:{port}, its store is {data_dir}. A session with it:\n")
        shown = [_show(command, flags, say) for command in _commands(port, data_dir)]
        if stay:
            say(f"Still serving. From another terminal: drillcore {shlex.join(flags)} --help\nStop it with Ctrl-C.")
            StopSignals().wait()
    directory, token_file = shlex.quote(str(data_dir)), shlex.quote(str(data_dir / FILE_NAME))
    say(
        "The server has stopped; what it acknowledged is in its store. To go on:\n"
        f"  .venv/bin/drillcore serve --data-dir {directory}   (stop it with Ctrl-C)\n"
        f"  .venv/bin/drillcore --token-file {token_file} --tenant sample-sponsor tree {_CORPUS}"
    )
    return {"port": port, "session": [{"command": s.command, "exit_code": s.exit_code} for s in shown]}


def _commands(port: int, data_dir: Path) -> Iterator[str]:
    """The session, each command made when its turn comes: one drills into what the query found."""
    document = data_dir / "21-cfr-11.txt"
    document.write_bytes(resources.files("drillcore_server").joinpath("sample/21-cfr-11.txt").read_bytes())
    yield "corpus list"
    yield f"ingest {shlex.quote(str(document))} --corpus {_CORPUS}"
    yield f"tree {_CORPUS}"
    yield f"query {shlex.quote(_QUESTION)} --corpus {_CORPUS} --page-size 2"
    with _client(port, data_dir) as client:
        tenant = client.get_tenant(name="sample-sponsor").id
        corpus = client.get_corpus(name=_CORPUS, tenant_id=tenant).id
        best = client.query(_QUESTION, corpus_ids=[corpus], page_size=1, tenant_id=tenant).items[0].node
        chain = KeyChain.parse(json.loads(client.get_checkpoint(server_log=True).keys))
    yield f"drill {best.id} --to raw"
    yield f"fact search {shlex.quote(_QUESTION)} --corpus {_CORPUS} --limit 3"
    yield f"community recompute --corpus {_CORPUS}"
    yield f"community list --corpus {_CORPUS} --page-size 5"
    yield from _erasure(data_dir)
    yield "corpus get no-such-corpus"
    yield "audit query --page-size 5"
    bundle = shlex.quote(str(data_dir / f"{_CORPUS}.zip"))
    yield f"export --corpus {_CORPUS} --format pdf --output {bundle} --force"
    yield f"verify {bundle} --key {chain.verifier(chain.keys[0]).encode()}"
    yield f"pack {shlex.quote(_QUESTION)} --corpus {_CORPUS} --model gpt-4o --budget 300"


def _erasure(data_dir: Path) -> Iterator[str]:
    """Personal data comes by mistake, and goes: it is erased, and found no more."""
    letter = data_dir / "letter.txt"
    letter.write_text(_LETTER, encoding="utf-8")
    name = f"--base {shlex.quote(str(data_dir))}"
    yield f"ingest {shlex.quote(str(letter))} {name} --corpus {_CORPUS}"
    yield f"fact search {shlex.quote(_ABOUT_THE_LETTER)} --corpus {_CORPUS} --limit 1"
    yield f"source erase letter.txt --corpus {_CORPUS} --reason 'GDPR, Art. 17' --now --yes"
    yield f"fact search {shlex.quote(_ABOUT_THE_LETTER)} --corpus {_CORPUS} --limit 1"


def _client(port: int, data_dir: Path) -> Client:
    return Client(f"127.0.0.1:{port}", token=(data_dir / FILE_NAME).read_text("ascii").strip())


@contextmanager
def _serving(data_dir: Path) -> Iterator[int]:
    """A server on the usual port, or on a free one if that is taken. Its log goes to a file beside the store."""
    settings = Settings(
        server=ServerSettings(metrics_listen="", shutdown_grace_s=2.0), engine=EngineSettings(data_dir=data_dir)
    )
    engine = open_engine(settings.engine)
    try:
        with (data_dir / "demo.log").open("w", encoding="utf-8") as log_file:
            log = make_logger(settings.server.log_format, log_file)
            server = Server(settings, engine, log)
            try:
                port = server.start()
            except SettingsError:
                server.close()
                server = Server(replace(settings, server=replace(settings.server, listen="127.0.0.1:0")), engine, log)
                port = server.start()
            try:
                yield port
            finally:
                server.stop()
    finally:
        engine.close()


def _load_sample(port: int, data_dir: Path) -> list[str]:
    """Puts the bundled sample into the store, unless it is there; the flags to reach it with."""
    sample = json.loads(resources.files("drillcore_server").joinpath("sample/corpora.json").read_text("utf-8"))
    with _client(port, data_dir) as client:
        name = sample["tenant"]["name"]
        try:
            tenant = client.create_tenant(name, metadata=sample["tenant"]["metadata"])
        except AlreadyExists:
            tenant = client.get_tenant(name=name)
        existing = {corpus.name for corpus in client.iter_corpora(tenant_id=tenant.id)}
        for corpus in sample["corpora"]:
            if corpus["name"] not in existing:
                client.create_corpus(**corpus, tenant_id=tenant.id)
    return ["--address", f"127.0.0.1:{port}", "--token-file", str(data_dir / FILE_NAME), "--tenant", name]


def _show(command: str, flags: list[str], say: Any) -> _Shown:
    say(f"$ drillcore {command}")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DRILLCORE_")}
    result = subprocess.run(  # noqa: S603 - our own command line, with our own arguments
        [sys.executable, "-m", "drillcore", *flags, *shlex.split(command)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    say(result.stdout + result.stderr)
    return _Shown(command, result.stdout + result.stderr, result.returncode)

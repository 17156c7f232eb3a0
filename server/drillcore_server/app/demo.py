"""`drillcore demo`: starts a server, loads a sample and shows a session on the command line."""

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
import grpc

from drillcore_formats.audit.keys import KeyChain
from drillcore_formats.settings import SettingsError
from drillcore_proto.v1 import (
    audit_pb2,
    audit_pb2_grpc,
    corpora_pb2,
    corpora_pb2_grpc,
    nodes_pb2,
    nodes_pb2_grpc,
    tenants_pb2,
    tenants_pb2_grpc,
)
from drillcore_server.app.config import EngineSettings, ServerSettings, Settings
from drillcore_server.app.factories import open_engine
from drillcore_server.app.main import Server
from drillcore_server.app.stop_signals import StopSignals
from drillcore_server.identity.bearer_tokens import FILE_NAME
from drillcore_server.kernel.telemetry import make_logger

_TENANT = "sample-sponsor"
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
    """Shows the session. If `stay`, keeps serving until Ctrl-C. Returns what was done, for --json."""
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
        f"  .venv/bin/drillcore --token-file {token_file} --tenant {_TENANT} tree {_CORPUS}"
    )
    return {"port": port, "session": [{"command": s.command, "exit_code": s.exit_code} for s in shown]}


def _commands(port: int, data_dir: Path) -> Iterator[str]:
    """The commands of the session, made one by one, because one of them needs the result of the query."""
    document = data_dir / "21-cfr-11.txt"
    document.write_bytes(resources.files("drillcore_server.app").joinpath("sample/21-cfr-11.txt").read_bytes())
    yield "corpus list"
    yield f"ingest {shlex.quote(str(document))} --corpus {_CORPUS}"
    yield f"tree {_CORPUS}"
    yield f"query {shlex.quote(_QUESTION)} --corpus {_CORPUS} --page-size 2"
    with _calling(port, data_dir) as calls:
        best, chain = calls.best_hit(), calls.audit_keys()
    yield f"drill {best} --to raw"
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
    """Adds a document with personal data, erases it, and shows that it is no longer found."""
    letter = data_dir / "letter.txt"
    letter.write_text(_LETTER, encoding="utf-8")
    name = f"--base {shlex.quote(str(data_dir))}"
    yield f"ingest {shlex.quote(str(letter))} {name} --corpus {_CORPUS}"
    yield f"fact search {shlex.quote(_ABOUT_THE_LETTER)} --corpus {_CORPUS} --limit 1"
    yield f"source erase letter.txt --corpus {_CORPUS} --reason 'GDPR, Art. 17' --now --yes"
    yield f"fact search {shlex.quote(_ABOUT_THE_LETTER)} --corpus {_CORPUS} --limit 1"


class _Calls:
    """The few calls that the demo does not show. They use the protocol directly.

    The server does not import the client.
    """

    def __init__(self, channel: grpc.Channel, token: str) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),)

    def load(self, sample: dict[str, Any]) -> None:
        """Makes the sample's tenant and corpora, unless they exist."""
        tenants, corpora = tenants_pb2_grpc.TenantServiceStub(self._channel), self._corpora()
        with _unless_it_exists():
            tenants.CreateTenant(tenants_pb2.CreateTenantRequest(**sample["tenant"]), metadata=self._metadata)
        tenant = self._tenant_id(sample["tenant"]["name"])
        for corpus in sample["corpora"]:
            with _unless_it_exists():
                request = corpora_pb2.CreateCorpusRequest(tenant_id=tenant, **corpus)
                corpora.CreateCorpus(request, metadata=self._metadata)

    def best_hit(self) -> str:
        """The id of the node that answers the question best."""
        tenant = self._tenant_id(_TENANT)
        named = corpora_pb2.GetCorpusRequest(tenant_id=tenant, name=_CORPUS)
        corpus = self._corpora().GetCorpus(named, metadata=self._metadata).corpus.id
        request = nodes_pb2.QueryRequest(
            tenant_id=tenant, corpus_ids=[corpus], level=nodes_pb2.LEVEL_CHUNK, text=_QUESTION, page_size=1
        )
        found = nodes_pb2_grpc.NodeServiceStub(self._channel).Query(request, metadata=self._metadata)
        return found.hits[0].node.id

    def audit_keys(self) -> KeyChain:
        request = audit_pb2.GetCheckpointRequest(server_log=True)
        found = audit_pb2_grpc.AuditServiceStub(self._channel).GetCheckpoint(request, metadata=self._metadata)
        return KeyChain.parse(json.loads(found.keys))

    def _corpora(self) -> corpora_pb2_grpc.CorpusServiceStub:
        return corpora_pb2_grpc.CorpusServiceStub(self._channel)

    def _tenant_id(self, name: str) -> str:
        request = tenants_pb2.GetTenantRequest(name=name)
        return tenants_pb2_grpc.TenantServiceStub(self._channel).GetTenant(request, metadata=self._metadata).tenant.id


@contextmanager
def _calling(port: int, data_dir: Path) -> Iterator[_Calls]:
    token = (data_dir / FILE_NAME).read_text("ascii").strip()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield _Calls(channel, token)


@contextmanager
def _unless_it_exists() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise


@contextmanager
def _serving(data_dir: Path) -> Iterator[int]:
    """Runs a server on the usual port, or on a free port if that is taken. Its log goes to a file beside the store."""
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
    """Puts the bundled sample into the store, unless it is there. Returns the flags that reach it."""
    sample = json.loads(resources.files("drillcore_server.app").joinpath("sample/corpora.json").read_text("utf-8"))
    with _calling(port, data_dir) as calls:
        calls.load(sample)
    return ["--address", f"127.0.0.1:{port}", "--token-file", str(data_dir / FILE_NAME), "--tenant", _TENANT]


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

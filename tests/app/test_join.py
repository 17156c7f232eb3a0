"""A server joins a cluster with an invitation, or is refused and leaves nothing behind.

An embedded engine stands in for the cluster: what is tested here does not depend on the engine. With real servers on a
real cluster: `tests/cluster`.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import click
import pytest

from drillcore import AuditFilter, Client
from drillcore.cli import main
from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import UnavailableError
from drillcore_formats.plugins import CommandError
from drillcore_formats.settings import SettingsError
from drillcore_server.app import invitation as invitations
from drillcore_server.app import join
from drillcore_server.app.config import ClusterTable, EngineKind, EngineSettings, Settings
from drillcore_server.app.invitation import Invitation, SealedInvitation, StoreKeys
from drillcore_server.app.main import Server
from drillcore_server.audit.settings import AuditSettings
from drillcore_server.audit.signing_keys import KeyFiles
from drillcore_server.kernel.access import SERVER
from drillcore_server.kernel.journal import PrivateHalf, SignerUnavailableError, SigningKeys
from drillcore_server.kernel.telemetry import LogFormat, make_logger
from drillcore_server.storage import keyring as keyrings
from drillcore_server.storage.keyring import KeyLostError, Keyring, make_secret_file
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from tests.support.servers.running import ACME_ID, OPERATOR, SETTINGS
from tests.support.stores.engines import open_engine

PASSPHRASE = "correct horse battery"
INVITE = ("cluster", "invite", "--engine", "cluster", "--data-dir", "one", "--cluster-file", "fdb.cluster")
"""As the first server does."""
CLUSTER_FILE = "test:test@127.0.0.1:4500\n"


class Cluster:
    """An engine that several servers share."""

    def __init__(self, engine: Engine, home: Path) -> None:
        self.engine = engine
        self.home = home
        self.file = home / "fdb.cluster"
        self.file.write_text(CLUSTER_FILE)

    def settings(self, name: str, **more: Any) -> Settings:
        """Those of the server `name`."""
        engine = EngineSettings(
            kind=EngineKind.CLUSTER, data_dir=self.home / name, cluster=ClusterTable(cluster_file=self.file)
        )
        return replace(Settings(server=SETTINGS, engine=engine), **more)

    @contextmanager
    def serving(self, settings: Settings) -> Iterator[Client]:
        server = Server(settings, self.engine, make_logger(LogFormat.JSON, io.StringIO()))
        port = server.start()
        try:
            with Client(f"127.0.0.1:{port}", token=OPERATOR, attempts=1) as client:
                yield client
        finally:
            server.stop()

    def begin(self) -> None:
        """The first start of the first server, which makes the store."""
        with self.serving(self.settings("one")):
            pass

    def contents(self) -> dict[bytes, bytes]:
        return self.engine.run(lambda tr: dict(tr.range(b"", b"\xff")))

    def keyspace(self) -> Keyspace:
        return Keyspace(open_store(self.engine)[0])

    def invitation(self, **changes: Any) -> Invitation:
        """Of the first server, made without a record."""
        key = self.home / "one" / "audit" / "keys" / "1.key"
        keys = StoreKeys(
            directory="drillcore",
            cluster_file=CLUSTER_FILE,
            master_key=(self.home / "one" / "keyring" / "master.key").read_bytes(),
            audit_key_number=1,
            audit_key=join.read_key(key).private_bytes_raw(),
        )
        store = open_store(self.engine)[1].store_id
        made = Invitation(uuid4(), store, datetime.now(UTC) + timedelta(hours=1), keys)
        return replace(made, **changes)

    def write(self, invitation: Invitation, passphrase: str = PASSPHRASE) -> Path:
        file = self.home / "invitation.json"
        file.write_bytes(invitation.seal(passphrase))
        return file


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    engine = open_engine(tmp_path / "engine")
    try:
        with mock.patch.object(engine, "close"):
            yield Cluster(engine, tmp_path)
    finally:
        engine.close()


@pytest.fixture
def joinable(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster with a server, which commands of this process reach instead of FoundationDB."""
    cluster.begin()
    for module in ("cli", "join", "store_options"):
        monkeypatch.setattr(f"drillcore_server.app.{module}.open_engine", lambda _settings: cluster.engine)
    monkeypatch.setenv("DRILLCORE_INVITATION_PASSPHRASE", PASSPHRASE)
    monkeypatch.chdir(cluster.home)
    return cluster


def drillcore(*arguments: str) -> Any:
    main(list(arguments), standalone_mode=False)


def serve(name: str, *more: str) -> None:
    """`drillcore serve` for the server `name`. It must be refused: nothing else ends it."""
    common = ("--data-dir", name, "--listen", "127.0.0.1:0", "--metrics-listen", "")
    drillcore("serve", "--engine", "cluster", *common, *more)


def refused(name: str, file: Path, *more: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        serve(name, "--join", str(file), *more)
    return caught.value


def test_a_server_joins_with_what_another_one_wrote(joinable: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    file = joinable.home / "invitation.json"
    drillcore(*INVITE, str(file), "--json")
    said = json.loads(capsys.readouterr().out)
    assert (said["file"], said["has_audit_key"]) == (str(file), True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    settings = joinable.settings("two")
    settings = replace(settings, engine=replace(settings.engine, cluster=ClusterTable()))
    accepted = join.accept(settings, SealedInvitation.read(file, datetime.now(UTC)), PASSPHRASE)
    with join.NewFiles() as files:
        join.keep_keys(settings, accepted, join.open_cluster(settings, accepted, files), files)
        files.keep()
    kept = [joinable.home / "two" / name for name in ("keyring/master.key", "audit/keys/1.key", "fdb.cluster")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept] == [0o600] * 3
    assert settings.engine.cluster_file == kept[-1], "the next start finds the cluster with it"
    with joinable.serving(joinable.settings("one")) as first, joinable.serving(settings) as second:
        made = first.create_tenant("acme", tenant_id=ACME_ID)
        assert second.get_tenant(ACME_ID) == made
        (record,) = first.query_audit(AuditFilter(action="EXPORT"), server_log=True).items
    assert (record.body["call"], record.body["operator"]) == ("InviteServer", SERVER.id)
    assert record.body["detail"]["invitation"] == said["invitation"]


def test_an_invitation_shows_nothing_of_the_keys_and_is_read_back_as_it_was(joinable: Cluster) -> None:
    invitation = joinable.invitation()
    file = joinable.write(invitation)
    keys, content = invitation.keys, file.read_bytes()
    for secret in (keys.master_key, keys.audit_key, CLUSTER_FILE.encode()):
        assert secret is not None
        assert secret not in content
        assert base64.b64encode(secret)[:-4] not in content
    assert repr(keys.master_key) not in repr(invitation)
    opened = SealedInvitation.read(file, datetime.now(UTC)).open(PASSPHRASE)
    assert replace(opened, expires=invitation.expires) == invitation


Spoil = Callable[[Cluster], tuple[Path, str]]
"""Makes an invitation that must be refused: its file and the reason."""


def expired(cluster: Cluster) -> tuple[Path, str]:
    return cluster.write(cluster.invitation(expires=datetime.now(UTC))), "INVITATION_EXPIRED"


def with_another_passphrase(cluster: Cluster) -> tuple[Path, str]:
    return cluster.write(cluster.invitation(), "another passphrase"), "WRONG_PASSPHRASE"


def with_an_expiry_that_somebody_moved(cluster: Cluster) -> tuple[Path, str]:
    """Who can compute a hash can make the file look whole, but not seal it."""
    file = cluster.write(cluster.invitation(expires=datetime(2020, 1, 1, tzinfo=UTC)))
    document = json.loads(file.read_bytes())
    document["expires"] = "2099-01-01T00:00:00+00:00"
    del document["sha256"]
    file.write_text(json.dumps({**document, "sha256": invitations._hash(document)}))
    return file, "WRONG_PASSPHRASE"


def with_a_changed_byte(cluster: Cluster) -> tuple[Path, str]:
    file = cluster.write(cluster.invitation())
    file.write_bytes(file.read_bytes().replace(b'"sealed":"', b'"sealed":"A', 1))
    return file, "INVITATION_DAMAGED"


def cut_in_half(cluster: Cluster) -> tuple[Path, str]:
    file = cluster.write(cluster.invitation())
    file.write_bytes(file.read_bytes()[:200])
    return file, "INVITATION_DAMAGED"


def that_is_not_there(cluster: Cluster) -> tuple[Path, str]:
    return cluster.home / "absent.json", "INVITATION_UNREADABLE"


def of_another_release(cluster: Cluster) -> tuple[Path, str]:
    file = cluster.write(cluster.invitation())
    file.write_bytes(file.read_bytes().replace(b'"drillcore_invitation":1', b'"drillcore_invitation":2'))
    return file, "INVITATION_UNREADABLE"


def of_another_store(cluster: Cluster) -> tuple[Path, str]:
    return cluster.write(cluster.invitation(store=uuid4())), "OTHER_STORE"


def of_a_store_in_another_directory(cluster: Cluster) -> tuple[Path, str]:
    invitation = cluster.invitation()
    return cluster.write(replace(invitation, keys=replace(invitation.keys, directory="other"))), "OTHER_STORE"


def with_another_master_key(cluster: Cluster) -> tuple[Path, str]:
    invitation = cluster.invitation()
    return cluster.write(replace(invitation, keys=replace(invitation.keys, master_key=bytes(32)))), "STORE_CORRUPT"


def with_another_audit_key(cluster: Cluster) -> tuple[Path, str]:
    invitation = cluster.invitation()
    return cluster.write(replace(invitation, keys=replace(invitation.keys, audit_key=bytes(32)))), "OTHER_STORE"


def from_before_the_audit_key_was_rotated(cluster: Cluster) -> tuple[Path, str]:
    file = cluster.write(cluster.invitation())
    with cluster.serving(cluster.settings("one")) as client:
        client.rotate_audit_key()
    return file, "INVITATION_EXPIRED"


def without_the_audit_key(cluster: Cluster) -> tuple[Path, str]:
    invitation = cluster.invitation()
    return cluster.write(replace(invitation, keys=replace(invitation.keys, audit_key=None))), "KEY_HELD_ELSEWHERE"


SPOILED = [
    expired,
    with_another_passphrase,
    with_an_expiry_that_somebody_moved,
    with_a_changed_byte,
    cut_in_half,
    that_is_not_there,
    of_another_release,
    of_another_store,
    of_a_store_in_another_directory,
    with_another_master_key,
    with_another_audit_key,
    from_before_the_audit_key_was_rotated,
    without_the_audit_key,
]


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_an_invitation_that_cannot_be_used_is_refused_and_leaves_nothing(joinable: Cluster, spoil: Spoil) -> None:
    file, reason = spoil(joinable)
    before = joinable.contents()
    error = refused("two", file)
    assert error.reason == reason, error.message
    assert not (joinable.home / "two").exists()
    assert joinable.contents() == before


def test_a_cluster_without_the_store_is_refused_and_gets_none(joinable: Cluster) -> None:
    file = joinable.write(joinable.invitation())
    joinable.engine.remove_directory("drillcore")
    before = joinable.contents()
    assert refused("two", file).reason == "STORE_NOT_FOUND"
    assert (joinable.contents(), (joinable.home / "two").exists()) == (before, False)


@pytest.mark.parametrize("name", ["keyring/master.key", "audit/keys/1.key"])
def test_keys_of_another_store_are_never_replaced(joinable: Cluster, name: str) -> None:
    there = joinable.home / "two" / name
    make_secret_file(there, bytes(32))
    error = refused("two", joinable.write(joinable.invitation()))
    assert (error.reason, f"two/{name}" in error.message) == ("KEYS_DIFFER", True)
    assert [path for path in (joinable.home / "two").rglob("*") if path.is_file()] == [there]
    assert there.read_bytes() == bytes(32)


def test_an_embedded_engine_has_no_cluster_to_join(joinable: Cluster) -> None:
    file = joinable.write(joinable.invitation())
    for arguments in (["serve", "--join", str(file)], ["cluster", "invite", "new.json"]):
        with pytest.raises(CommandError, match="embedded store belongs to one server"):
            drillcore(*arguments, "--engine", "embedded", "--data-dir", "two")
    assert not (joinable.home / "two").exists()
    assert not (joinable.home / "new.json").exists()


def test_a_start_that_fails_after_joining_leaves_nothing(joinable: Cluster) -> None:
    file = joinable.write(joinable.invitation())
    before = joinable.contents()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SettingsError, match=address):
            serve("two", "--join", str(file), "--listen", address)
    assert (joinable.contents(), (joinable.home / "two").exists()) == (before, False)


def test_keys_that_cannot_be_written_are_refused_with_the_place(joinable: Cluster) -> None:
    (joinable.home / "file").write_text("not a directory")
    error = refused("file/two", joinable.write(joinable.invitation()))
    assert (error.reason, "file/two" in error.message) == ("KEYS_NOT_KEPT", True)


def test_joining_again_with_the_same_keys_changes_nothing(joinable: Cluster) -> None:
    invitation, settings = joinable.invitation(), joinable.settings("two")
    for _ in range(2):
        with join.NewFiles() as files:
            join.keep_keys(settings, invitation, joinable.engine, files)
            files.keep()
    with join.NewFiles() as files:  # a third start, which fails
        join.keep_keys(settings, invitation, joinable.engine, files)
    with joinable.serving(settings) as client:
        client.list_tenants()


def test_nobody_is_asked_where_nobody_can_answer(joinable: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRILLCORE_INVITATION_PASSPHRASE")
    file = joinable.write(joinable.invitation())
    with pytest.raises(click.UsageError, match="--passphrase-file or DRILLCORE_INVITATION_PASSPHRASE"):
        serve("two", "--join", str(file), "--json")
    (joinable.home / "passphrase").write_text("another passphrase\n")
    assert refused("two", file, "--passphrase-file", "passphrase").reason == "WRONG_PASSPHRASE"


def test_a_short_passphrase_or_an_existing_file_is_refused_without_a_record(
    joinable: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = joinable.contents()
    with pytest.raises(CommandError, match="is there already"):
        drillcore(*INVITE, "fdb.cluster")
    with pytest.raises(CommandError, match="there is no directory"):
        drillcore(*INVITE, "absent/new.json")
    monkeypatch.setenv("DRILLCORE_INVITATION_PASSPHRASE", "short")
    with pytest.raises(click.UsageError, match="at least 12 characters"):
        drillcore(*INVITE, "new.json")
    assert joinable.contents() == before
    assert joinable.file.read_text() == CLUSTER_FILE


def test_a_server_without_the_keys_cannot_invite(joinable: Cluster) -> None:
    with pytest.raises(CommandError, match="drillcore cluster invite"):
        drillcore("cluster", "invite", "new.json", "--engine", "cluster", "--data-dir", "two")
    assert not (joinable.home / "two").exists()
    assert not (joinable.home / "new.json").exists()


def test_a_key_that_a_program_holds_is_not_in_the_invitation(
    joinable: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    signer = signing_program(joinable.home, (joinable.home / "one" / "audit" / "keys" / "1.key"))
    (joinable.home / "drillcore.toml").write_text(f"[audit]\nsigner_command = {json.dumps(signer)}\n")
    drillcore(*INVITE, "new.json")
    assert "It has no audit key: set audit.signer_command" in capsys.readouterr().out
    settings = joinable.settings("two", audit=AuditSettings(signer_command=tuple(signer)))
    sealed = SealedInvitation.read(Path("new.json"), datetime.now(UTC))
    with pytest.raises(CommandError, match="held by a program"):
        join.accept(joinable.settings("two"), sealed, PASSPHRASE)
    invitation = join.accept(settings, sealed, PASSPHRASE)
    with join.NewFiles() as files:
        join.keep_keys(settings, invitation, joinable.engine, files)
        files.keep()
    with joinable.serving(settings) as client:
        client.list_tenants()
    assert not (joinable.home / "two" / "audit").exists()


def test_a_second_server_without_keys_is_refused_with_what_to_do_and_leaves_nothing(cluster: Cluster) -> None:
    cluster.begin()
    before = cluster.contents()
    settings = replace(cluster.settings("two"), server=replace(SETTINGS, tokens=()))
    with pytest.raises(KeyLostError, match="drillcore serve --join FILE"), cluster.serving(settings):
        pass
    assert not (cluster.home / "two").exists()
    make_secret_file(cluster.home / "two" / "keyring" / "master.key", cluster.invitation().keys.master_key)
    with pytest.raises(SignerUnavailableError, match="drillcore serve --join FILE"), cluster.serving(settings):
        pass
    assert [path.name for path in (cluster.home / "two").rglob("*") if path.is_file()] == ["master.key"]
    assert cluster.contents() == before


def test_of_two_first_starts_at_once_the_later_leaves_no_keys(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server makes its keys after this one has seen that there are none."""
    one, two = cluster.settings("one"), cluster.settings("two")
    directories, header = open_store(cluster.engine)
    keys, root = Keyspace(directories), cluster.engine.directory(*one.engine.keyring_path)
    theirs = one.engine.master_key_path
    make = keyrings.read_or_make_master_key

    def make_second(path: Path) -> bytes:
        monkeypatch.setattr(keyrings, "read_or_make_master_key", make)
        Keyring.open(cluster.engine, root, theirs)
        return make(path)

    monkeypatch.setattr(keyrings, "read_or_make_master_key", make_second)
    with pytest.raises(KeyLostError):
        Keyring.open(cluster.engine, root, two.engine.master_key_path)
    assert (theirs.exists(), two.engine.master_key_path.exists()) == (True, False)

    class Slow(KeyFiles):
        def find_or_make(self, number: int) -> PrivateHalf:
            SigningKeys.open(cluster.engine, keys, header.store_id, KeyFiles(one.audit_key_dir), datetime.now(UTC))
            return super().find_or_make(number)

    with pytest.raises(SignerUnavailableError):
        SigningKeys.open(cluster.engine, keys, header.store_id, Slow(two.audit_key_dir), datetime.now(UTC))
    assert (KeyFiles(one.audit_key_dir).path(1).exists(), KeyFiles(two.audit_key_dir).path(1).exists()) == (True, False)


def mounted(cluster: Cluster, **files: bytes) -> Settings:
    """The settings of a server with these files in a mounted directory."""
    secrets = cluster.home / "secrets"
    for name, content in files.items():
        make_secret_file(secrets / name.replace("_", "."), content)
    settings = cluster.settings("two")
    return replace(settings, engine=replace(settings.engine, secret_dir=secrets))


def test_servers_share_the_keys_of_a_mounted_directory(cluster: Cluster) -> None:
    settings = mounted(cluster, master_key=b"m" * 32, **{"1_key": b"a" * 32})
    third = replace(settings, engine=replace(settings.engine, data_dir=cluster.home / "three"))
    with cluster.serving(settings) as second, cluster.serving(third) as other:
        made = second.create_tenant("acme", tenant_id=ACME_ID)
        assert other.get_tenant(ACME_ID) == made
    kept = [path for name in ("two", "three") for path in (cluster.home / name).rglob("*.key")]
    assert kept == [], "no server has keys of its own"


def test_a_mounted_file_of_another_user_may_be_read_by_the_group(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes mounts secrets so, because the server could not read them otherwise."""
    settings = mounted(cluster, master_key=b"m" * 32, **{"1_key": b"a" * 32})
    for file in (cluster.home / "secrets").iterdir():
        file.chmod(0o440)
    with pytest.raises(UnavailableError, match="chmod 600"), cluster.serving(settings):
        pass
    monkeypatch.setattr("os.geteuid", lambda: 7_600)
    with cluster.serving(settings) as client:
        client.list_tenants()
    (cluster.home / "secrets" / "1.key").chmod(0o444)
    with pytest.raises(SignerUnavailableError, match="chmod 600"), cluster.serving(settings):
        pass


def test_a_mounted_directory_without_a_key_that_cannot_be_written_is_refused(cluster: Cluster) -> None:
    settings = cluster.settings("two")
    (cluster.home / "secrets").write_text("a directory that nobody can write to")
    settings = replace(settings, engine=replace(settings.engine, secret_dir=cluster.home / "secrets"))
    with pytest.raises(UnavailableError, match=r"secrets/master.key cannot be made"), cluster.serving(settings):
        pass


def signing_program(home: Path, key: Path) -> list[str]:
    """A program that signs with the key of a file, as an HSM would."""
    program = home / "signer.py"
    program.write_text(
        "import base64, json, sys\n"
        "from cryptography.hazmat.primitives.serialization import load_pem_private_key\n"
        f"key = load_pem_private_key(open({str(key)!r}, 'rb').read(), None)\n"
        "for line in sys.stdin:\n"
        "    question = json.loads(line)\n"
        "    if 'sign' in question:\n"
        "        answer = {'signature': key.sign(base64.b64decode(question['sign']))}\n"
        "    else:\n"
        "        answer = {'public_key': key.public_key().public_bytes_raw()}\n"
        "    print(json.dumps({n: base64.b64encode(v).decode() for n, v in answer.items()}), flush=True)\n"
    )
    return [sys.executable, str(program)]

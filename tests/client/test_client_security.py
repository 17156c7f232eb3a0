"""The client protects its token and checks the server's identity."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from cryptography import x509

from drillcore import TLS, AsyncClient, Client, ClientSettings, SettingsError, Unavailable
from tests.support.data.certificates import Authority
from tests.support.servers.in_memory_server import Peer, running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an authority (ca) and its certificates for a server (drillcore.test) and a client."""
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority.make(directory, "ca")
    for name in ("server", "client"):
        authority.sign(name, x509.DNSName("drillcore.test"))
    return directory


def server_credentials(certificates: Path, *, mutual: bool = False) -> grpc.ServerCredentials:
    pair = ((certificates / "server.key").read_bytes(), (certificates / "server.pem").read_bytes())
    return grpc.ssl_server_credentials([pair], (certificates / "ca.pem").read_bytes() if mutual else None, mutual)


@pytest.mark.parametrize(
    "address",
    [
        "example.org:7600",
        "10.0.0.1:7600",
        "dns:///example.org:7600",
        "[2001:db8::1]:7600",
        "ipv4:127.0.0.1:7600,10.0.0.1:7600",
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_token_does_not_leave_the_machine_unencrypted(address: str, kind: type[Client] | type[AsyncClient]) -> None:
    with pytest.raises(SettingsError, match=r"unencrypted to .*TLS.*allow_insecure"):
        kind(address, token="secret")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:1",
        "localhost:1",
        "[::1]:1",
        "unix:/tmp/socket",
        "dns:///localhost:1",
        "ipv4:127.0.0.1:1,127.0.0.1:2",
    ],
)
def test_a_token_may_be_sent_on_this_machine(address: str) -> None:
    Client(address, token="secret").close()


def test_an_unencrypted_token_can_be_allowed_and_no_token_needs_no_permission() -> None:
    Client("example.org:7600", token="secret", allow_insecure=True).close()
    Client("example.org:7600").close()


def test_a_token_with_tls_needs_no_permission() -> None:
    Client("example.org:7600", token="secret", tls=TLS()).close()


def test_disabled_tls_protects_no_token() -> None:
    with pytest.raises(SettingsError, match="unencrypted"):
        Client("example.org:7600", token="secret", tls=TLS(enabled=False))


def test_the_token_is_not_in_the_repr_of_settings_or_client() -> None:
    with Client(token="top-secret") as client:
        assert "top-secret" not in repr(client.settings) + repr(client) + str(vars(client)["settings"])
    assert "top-secret" not in repr(ClientSettings(token="top-secret"))


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "größe", ""])
def test_a_token_that_cannot_be_sent_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ValueError, match=r"^token must be printable ASCII without spaces and not empty$"):
        Client(token=token)


def test_calls_to_this_machine_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with running() as peer, Client(peer.address, token="secret", attempts=1) as client:
        assert client.server_info().version == "9.8.7"


def test_a_tls_server_with_a_trusted_authority_is_reached(certificates: Path) -> None:
    tls = TLS(ca_file=certificates / "ca.pem", server_name="drillcore.test")
    with running(credentials=server_credentials(certificates)) as peer, Client(peer.address, tls=tls) as client:
        assert client.server_info().version == "9.8.7"


@pytest.mark.parametrize("tls", [TLS(server_name="drillcore.test"), None], ids=["unknown authority", "no TLS"])
def test_an_untrusted_tls_server_gets_no_call(certificates: Path, tls: TLS | None) -> None:
    with (
        running(credentials=server_credentials(certificates)) as peer,
        Client(peer.address, tls=tls, attempts=1, token="secret") as client,
        pytest.raises(Unavailable),
    ):
        client.server_info()
    assert peer.seen == []


def test_a_certificate_for_another_name_is_refused(certificates: Path) -> None:
    tls = TLS(ca_file=certificates / "ca.pem", server_name="other.test")
    with (
        running(credentials=server_credentials(certificates)) as peer,
        Client(peer.address, tls=tls, attempts=1) as client,
        pytest.raises(Unavailable),
    ):
        client.server_info()


def test_a_client_certificate_is_shown_to_a_server_that_wants_one(certificates: Path) -> None:
    stranger = TLS(ca_file=certificates / "ca.pem", server_name="drillcore.test")
    known = TLS(
        ca_file=certificates / "ca.pem",
        server_name="drillcore.test",
        certificate_file=certificates / "client.pem",
        key_file=certificates / "client.key",
    )
    with running(Peer(), credentials=server_credentials(certificates, mutual=True)) as peer:
        with Client(peer.address, tls=known) as client:
            assert client.server_info().version == "9.8.7"
        with Client(peer.address, tls=stranger, attempts=1) as client, pytest.raises(Unavailable):
            client.server_info()


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(ValueError, match="set both certificate_file and key_file"):
        TLS(certificate_file=Path("client.pem"))


def test_a_missing_certificate_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"tls.ca_file cannot be read: .*missing\.pem"):
        Client(tls=TLS(ca_file=tmp_path / "missing.pem"))

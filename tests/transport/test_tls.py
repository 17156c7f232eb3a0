"""Encryption: TLS admits clients that trust the server's authority, and mTLS only clients with its certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore import TLS, Client, SettingsError, Unauthenticated, Unavailable
from drillcore_server.app.config import TlsSettings
from tests.support.data.certificates import Authority
from tests.support.servers.running import OPERATOR, Running, running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that neither the server nor its clients trust."""
    return Authority.make(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def tls_settings(authority: Authority) -> TlsSettings:
    server = authority.sign("server")
    return TlsSettings(certificate_file=server.certificate, key_file=server.key)


@pytest.fixture
def encrypted(tmp_path: Path, tls_settings: TlsSettings) -> Iterator[Running]:
    with running(tmp_path, tls=tls_settings) as found:
        yield found


@pytest.fixture
def mutual(tmp_path: Path, tls_settings: TlsSettings, authority: Authority) -> Iterator[Running]:
    """A server that requires certificates of its clients too."""
    tls = TlsSettings(
        certificate_file=tls_settings.certificate_file,
        key_file=tls_settings.key_file,
        client_ca_file=authority.certificate,
    )
    with running(tmp_path, tls=tls) as found:
        yield found


def refused(client: Client) -> bool:
    with pytest.raises(Unavailable):
        client.server_info(timeout_s=10)
    return True


def test_a_client_that_trusts_the_authority_connects(encrypted: Running, authority: Authority) -> None:
    client = encrypted.client(tls=TLS(ca_file=authority.certificate))
    assert client.create_tenant("acme").name == "acme"


def test_a_client_that_trusts_another_authority_does_not_connect(encrypted: Running, stranger: Authority) -> None:
    assert refused(encrypted.client(tls=TLS(ca_file=stranger.certificate)))


def test_a_client_without_tls_does_not_connect(encrypted: Running) -> None:
    assert refused(encrypted.client())


def test_a_client_with_tls_does_not_connect_to_a_server_without(server: Running, authority: Authority) -> None:
    assert refused(server.client(tls=TLS(ca_file=authority.certificate)))


def test_a_client_checks_the_servers_name(encrypted: Running, authority: Authority) -> None:
    assert refused(encrypted.client(tls=TLS(ca_file=authority.certificate, server_name="elsewhere.example")))


def test_a_client_with_a_certificate_of_the_authority_connects(mutual: Running, authority: Authority) -> None:
    known = authority.sign("client")
    tls = TLS(ca_file=authority.certificate, certificate_file=known.certificate, key_file=known.key)
    assert mutual.client(tls=tls).server_info().principal == "root"


def test_a_client_without_a_certificate_is_refused(mutual: Running, authority: Authority) -> None:
    assert refused(mutual.client(tls=TLS(ca_file=authority.certificate)))


def test_a_client_with_a_certificate_of_another_authority_is_refused(
    mutual: Running, authority: Authority, stranger: Authority
) -> None:
    unknown = stranger.sign("client")
    tls = TLS(ca_file=authority.certificate, certificate_file=unknown.certificate, key_file=unknown.key)
    assert refused(mutual.client(tls=tls))


def test_a_certificate_does_not_replace_the_token(mutual: Running, authority: Authority) -> None:
    known = authority.sign("client")
    tls = TLS(ca_file=authority.certificate, certificate_file=known.certificate, key_file=known.key)
    with pytest.raises(Unauthenticated):
        mutual.client("wrong-token-0123456789", tls=tls).server_info()


def test_listening_to_other_machines_is_allowed_with_tls(
    tmp_path: Path, tls_settings: TlsSettings, authority: Authority
) -> None:
    with running(tmp_path, tls=tls_settings, listen="0.0.0.0:0") as server:
        assert server.client(OPERATOR, tls=TLS(ca_file=authority.certificate)).server_info().principal == "root"


def test_missing_files_are_named(tmp_path: Path, tls_settings: TlsSettings) -> None:
    tls = TlsSettings(certificate_file=tmp_path / "missing.pem", key_file=tls_settings.key_file)
    with pytest.raises(SettingsError, match=r"missing\.pem"), running(tmp_path / "data", tls=tls):
        pass


def test_files_that_are_no_certificates_are_refused(tmp_path: Path, tls_settings: TlsSettings) -> None:
    (tmp_path / "garbage.pem").write_text("garbage")
    tls = TlsSettings(certificate_file=tmp_path / "garbage.pem", key_file=tls_settings.key_file)
    with pytest.raises(SettingsError), running(tmp_path / "data", tls=tls):
        pass

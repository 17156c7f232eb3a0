"""A client certificate may be bound to an account. A valid certificate is then enough to call."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from drillcore import TLS, Client, Grant, Role
from drillcore_proto.reasons import Reason
from drillcore_server.app.config import TlsSettings
from drillcore_server.identity.authenticator import read_certificate
from drillcore_server.kernel.errors import Denied
from tests.support.data.certificates import Authority, Certificate
from tests.support.servers.people import refused
from tests.support.servers.running import ACME_ID, GLOBEX_ID, OPERATOR, Running, create_tenants, running
from tests.support.stores.trails import records


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def mine(authority: Authority) -> Certificate:
    return authority.sign("job")


def tls(authority: Authority, shown: Certificate) -> TLS:
    return TLS(ca_file=authority.certificate, certificate_file=shown.certificate, key_file=shown.key)


def sha256(shown: Certificate) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown.certificate.read_text())).hexdigest()


@pytest.fixture
def mutual(tmp_path: Path, authority: Authority, mine: Certificate) -> Iterator[Running]:
    """A server that asks for client certificates, with both tenants."""
    own = authority.sign("server")
    settings = TlsSettings(certificate_file=own.certificate, key_file=own.key, client_ca_file=authority.certificate)
    with running(tmp_path, tls=settings) as server:
        create_tenants(server.client(tls=tls(authority, mine)))
        yield server


@pytest.fixture
def root(mutual: Running, authority: Authority, mine: Certificate) -> Client:
    return mutual.client(OPERATOR, tls=tls(authority, mine), tenant_id=ACME_ID)


def test_a_bound_certificate_is_enough_to_call(
    mutual: Running, root: Client, authority: Authority, mine: Certificate
) -> None:
    client = mutual.client(None, tls=tls(authority, mine))
    with refused(Reason.UNAUTHENTICATED):
        client.server_info()
    bound = root.create_account("job", name="Job", grants=[Grant(Role.READER)], certificate_sha256=[sha256(mine)])
    assert client.server_info().principal == str(bound.id)
    client.list_corpora(request_id="by-certificate")
    (record,) = records(mutual, request_id="by-certificate")
    assert (record["operator"], record["proof"], record["certificate"]) == (str(bound.id), "certificate", "job")


def test_an_unbound_certificate_of_the_authority_is_refused(
    mutual: Running, root: Client, authority: Authority, mine: Certificate
) -> None:
    root.create_account("job", name="Job", certificate_sha256=[sha256(mine)])
    with refused(Reason.UNAUTHENTICATED):
        mutual.client(None, tls=tls(authority, authority.sign("another"))).server_info()


def test_a_certificate_that_is_unbound_is_refused_at_once(
    mutual: Running, root: Client, authority: Authority, mine: Certificate
) -> None:
    account = root.create_account("job", name="Job", certificate_sha256=[sha256(mine)]).id
    client = mutual.client(None, tls=tls(authority, mine))
    client.server_info()
    root.update_account(account, remove_certificate_sha256=[sha256(mine)])
    with refused(Reason.UNAUTHENTICATED):
        client.server_info()
    root.update_account(account, add_certificate_sha256=[sha256(mine)])
    client.server_info()
    root.update_account(account, disabled=True)
    with refused(Reason.ACCOUNT_DISABLED):
        client.server_info()


def test_a_token_takes_precedence_over_the_certificate(
    mutual: Running, root: Client, authority: Authority, mine: Certificate
) -> None:
    root.create_account("job", name="Job", certificate_sha256=[sha256(mine)])
    assert root.server_info().principal == "root"
    with refused(Reason.UNAUTHENTICATED):
        mutual.client("a-wrong-token-0123456789", tls=tls(authority, mine)).server_info()


def test_an_account_with_a_certificate_stays_in_its_tenant(
    mutual: Running, root: Client, authority: Authority, mine: Certificate
) -> None:
    root.create_account("job", name="Job", grants=[Grant(Role.READER)], certificate_sha256=[sha256(mine)])
    client = mutual.client(None, tls=tls(authority, mine))
    with refused(Reason.TENANT_NOT_FOUND):
        client.list_corpora(tenant_id=GLOBEX_ID)
    with refused(Reason.PERMISSION_DENIED):
        client.create_corpus("mine")


def test_without_an_authority_for_clients_certificates_are_ignored(
    tmp_path: Path, authority: Authority, mine: Certificate
) -> None:
    own = authority.sign("plain")
    settings = TlsSettings(certificate_file=own.certificate, key_file=own.key)
    with running(tmp_path, tls=settings) as server:
        root = server.client(tls=TLS(ca_file=authority.certificate))
        create_tenants(root)
        root.create_account("job", name="Job", certificate_sha256=[sha256(mine)], tenant_id=ACME_ID)
        with refused(Reason.UNAUTHENTICATED):
            server.client(None, tls=tls(authority, mine)).server_info()


def made(valid_from: datetime, valid_until: datetime) -> bytes:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "job")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, valid_from, valid_until)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def test_a_certificate_that_expires_while_its_connection_lasts_is_refused() -> None:
    """TLS checks the certificate only when the connection is made."""
    now = datetime.now(UTC).replace(microsecond=0)
    pem = made(now - timedelta(days=1), now + timedelta(days=1))
    certificate = read_certificate(pem)
    assert certificate.sha256 == hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode())).digest()
    certificate.check_valid(now)
    for at in (now - timedelta(days=1, seconds=1), now + timedelta(days=1, seconds=1)):
        with pytest.raises(Denied, match="has expired"):
            certificate.check_valid(at)


def test_bytes_that_are_no_certificate_are_refused() -> None:
    with pytest.raises(Denied, match="cannot be read"):
        read_certificate(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")

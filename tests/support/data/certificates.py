"""A certificate authority and the certificates that it signs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

LOOPBACK = x509.IPAddress(IPv4Address("127.0.0.1"))


@dataclass(frozen=True)
class Certificate:
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """Signs certificates. Tests trust it by its own certificate."""

    directory: Path
    name: str
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate(self) -> Path:
        return self.directory / f"{self.name}.pem"

    @classmethod
    def make(cls, directory: Path, name: str) -> Authority:
        authority = cls(directory, name, ec.generate_private_key(ec.SECP256R1()))
        authority._issue(name, authority.key, x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return authority

    def sign(self, name: str, holder: x509.GeneralName = LOOPBACK) -> Certificate:
        """A certificate for this machine's loopback address, or for another holder."""
        key = ec.generate_private_key(ec.SECP256R1())
        file = self.directory / f"{name}.key"
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return Certificate(self._issue(name, key, x509.SubjectAlternativeName([holder]), critical=False), file)

    def _issue(
        self, name: str, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType, *, critical: bool
    ) -> Path:
        now, file = datetime.now(UTC), self.directory / f"{name}.pem"
        made = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(extension, critical)
            .sign(self.key, hashes.SHA256())
        )
        file.write_bytes(made.public_bytes(Encoding.PEM))
        return file


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

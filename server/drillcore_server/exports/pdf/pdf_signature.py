"""The digital signature of a PDF (PAdES): ECDSA on P-256 by a key of the server's, with a certificate that names it.

The certificate is made by the server itself, unless the settings name another. Who checks a copy compares its SHA-256
with that in the bundle's manifest, which the audit key signs; or gives the certificate a place among those they trust.
"""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from drillcore_server.storage.keyring import make_secret_file

if TYPE_CHECKING:
    from pyhanko.sign.signers import SimpleSigner

KEY_FILE: Final = "pdf-signing.key"
CERTIFICATE_FILE: Final = "pdf-signing.pem"
_VALID: Final = timedelta(days=365 * 20)
_FIELD: Final = "DrillcoreExport"
_making = threading.Lock()
"""Two exports at once make one key."""


class PdfKeyError(Exception):
    """The key or the certificate cannot be used; says which and why."""


@dataclass(frozen=True, slots=True)
class PdfSigner:
    key_file: Path
    certificate_file: Path
    made_for: UUID | None = None
    """The store whose server makes the key, if there is none yet."""

    @classmethod
    def made_in(cls, directory: Path, store: UUID) -> PdfSigner:
        """With the key in this directory, which is made on first use."""
        return cls(directory / KEY_FILE, directory / CERTIFICATE_FILE, store)

    def check(self) -> None:
        """Raises `PdfKeyError` unless key and certificate can be used."""
        self._loaded()
        _ = self.certificate_sha256

    @property
    def certificate_sha256(self) -> str:
        self._make_if_missing()
        try:
            certificate = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
        except (OSError, ValueError) as error:
            raise PdfKeyError(f"{self.certificate_file}: not a certificate in PEM that can be read: {error}") from error
        return certificate.fingerprint(hashes.SHA256()).hex()

    def signed(self, pdf: bytes, *, reason: str) -> bytes:
        """The file with the signature added at its end."""
        from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
        from pyhanko.sign import signers
        from pyhanko.sign.fields import SigSeedSubFilter

        metadata = signers.PdfSignatureMetadata(
            field_name=_FIELD,
            md_algorithm="sha256",
            subfilter=SigSeedSubFilter.PADES,
            reason=reason,
            name="Drillcore",
        )
        written = io.BytesIO()
        signer = signers.PdfSigner(metadata, signer=self._loaded())
        signer.sign_pdf(IncrementalPdfFileWriter(io.BytesIO(pdf)), output=written)
        return written.getvalue()

    def _make_if_missing(self) -> None:
        with _making:
            if self.made_for is not None and not self.certificate_file.exists():
                _make(self, self.made_for)

    def _loaded(self) -> SimpleSigner:
        from pyhanko.sign.signers import SimpleSigner

        self._make_if_missing()
        try:
            loaded: SimpleSigner | None = SimpleSigner.load(  # type: ignore[no-untyped-call]
                str(self.key_file), str(self.certificate_file)
            )
        except (OSError, ValueError) as error:
            raise PdfKeyError(f"{self.key_file}: not a private key in PEM that can be read: {error}") from error
        if loaded is None:
            raise PdfKeyError(f"{self.key_file} and {self.certificate_file}: not a key and its certificate, in PEM")
        return loaded


def _make(signer: PdfSigner, store: UUID) -> None:
    """The key first: a certificate that is there has its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    unencrypted = serialization.NoEncryption()
    written = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted)
    make_secret_file(signer.key_file, written)
    certificate = _certificate(key, store).public_bytes(serialization.Encoding.PEM)
    make_secret_file(signer.certificate_file, certificate)


def _certificate(key: ec.EllipticCurvePrivateKey, store: UUID) -> x509.Certificate:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, f"drillcore-{store}"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Signed exports"),
        ]
    )
    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=True,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )

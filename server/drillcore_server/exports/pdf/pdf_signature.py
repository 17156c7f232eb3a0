"""Signs PDF copies (PAdES), and opens the key, certificate and fonts that the settings name for them.

The signature is ECDSA on P-256. The server makes its own key and certificate, unless the settings name others. To check
a copy, compare the SHA-256 of its certificate with the one in the bundle's manifest, which the audit key signs. Or add
the certificate to those that you trust.
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

from drillcore_formats.settings import SettingsError
from drillcore_server.audit.settings import AuditSettings
from drillcore_server.storage.keyring import make_secret_file

if TYPE_CHECKING:
    from pyhanko.sign.signers import SimpleSigner

KEY_FILE: Final = "pdf-signing.key"
CERTIFICATE_FILE: Final = "pdf-signing.pem"
_VALID: Final = timedelta(days=365 * 20)
_FIELD: Final = "DrillcoreExport"
_make_lock = threading.Lock()
"""Ensures that two exports at the same time make only one key."""


class PdfKeyError(Exception):
    """The key or the certificate cannot be used. The message says which and why."""


@dataclass(frozen=True, slots=True)
class PdfSigner:
    key_file: Path
    certificate_file: Path
    made_for: UUID | None = None
    """If set, a missing key is made, with a certificate that names this store."""

    @classmethod
    def made_in(cls, directory: Path, store: UUID) -> PdfSigner:
        """A signer whose key is in this directory. The key is made on first use."""
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
            raise PdfKeyError(f"{self.certificate_file}: must be a readable certificate in PEM: {error}") from error
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
        with _make_lock:
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
            raise PdfKeyError(f"{self.key_file}: must be a readable private key in PEM: {error}") from error
        if loaded is None:
            raise PdfKeyError(
                f"{self.key_file} and {self.certificate_file}: must be a private key and its certificate, in PEM"
            )
        return loaded


def _make(signer: PdfSigner, store: UUID) -> None:
    """Writes the key first, so that an existing certificate always has its key."""
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


PAGES_MAX: Final = 400
"""Pages of text in a volume. A volume is held in memory while it is made: about 250 KB a page."""


@dataclass(frozen=True, slots=True)
class PdfOptions:
    """What PDF copies are made with: the signing key, fonts and the size of volumes."""

    signer: PdfSigner
    font_files: tuple[Path, ...] = ()
    """The operator's own TrueType fonts, for scripts that the built-in fonts lack."""
    pages_max: int = PAGES_MAX


def open_pdf_options(settings: AuditSettings, data_dir: Path, store: UUID) -> PdfOptions:
    """Reads the settings. Without a key in them, the server makes its own with the first PDF copy.

    Raises `SettingsError` if a key, certificate or font of the settings cannot be used.
    """
    if settings.pdf_key_file is None or settings.pdf_certificate_file is None:
        signer = PdfSigner.made_in(data_dir / "audit", store)
    else:
        signer = PdfSigner(settings.pdf_key_file, settings.pdf_certificate_file)
        _check(signer)
    return PdfOptions(signer, () if settings.pdf_font_dir is None else _fonts_in(settings.pdf_font_dir))


def _check(signer: PdfSigner) -> None:
    try:
        signer.check()
    except PdfKeyError as error:
        raise SettingsError(f"audit.pdf_key_file: {error}") from error


def _fonts_in(directory: Path) -> tuple[Path, ...]:
    from drillcore_server.exports.pdf.fonts import FontError, Fonts  # reportlab is slow to import

    files = tuple(sorted(directory.glob("*.ttf")))
    if not files:
        raise SettingsError(f"audit.pdf_font_dir: {directory} has no files *.ttf")
    try:
        Fonts(files)
    except FontError as error:
        raise SettingsError(f"audit.pdf_font_dir: {error}") from error
    return files

"""A small PDF file with a PAdES signature, whose certificate is made on the spot."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.sign import signers
from pyhanko.sign.fields import SigSeedSubFilter
from reportlab.pdfgen.canvas import Canvas


def make_pdf(text: str) -> bytes:
    file = io.BytesIO()
    canvas = Canvas(file)
    canvas.drawString(100, 700, text)
    canvas.save()
    return file.getvalue()


def make_signed_pdf(text: str = "approved") -> bytes:
    metadata = signers.PdfSignatureMetadata(field_name="Server", subfilter=SigSeedSubFilter.PADES)
    out = io.BytesIO()
    signers.sign_pdf(IncrementalPdfFileWriter(io.BytesIO(make_pdf(text))), metadata, _signer(), output=out)
    return out.getvalue()


def _signer() -> signers.SimpleSigner:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "drillcore test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.KeyUsage(True, True, *[False] * 7), critical=True)
        .sign(key, hashes.SHA256())
    )
    pkcs12 = serialization.pkcs12.serialize_key_and_certificates(
        b"test", key, certificate, None, serialization.NoEncryption()
    )
    found = signers.SimpleSigner.load_pkcs12_data(pkcs12, [])
    assert isinstance(found, signers.SimpleSigner)
    return found

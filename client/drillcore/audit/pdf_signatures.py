"""The digital signatures within a PDF file (PAdES). Needs pyhanko, which comes with the server."""

from __future__ import annotations

import hashlib
import importlib.util
from typing import BinaryIO

from drillcore.audit.failures import Malformed, Untrusted, WrongSignature


def can_check_pdf() -> bool:
    return importlib.util.find_spec("pyhanko") is not None


def check_pdf(file: BinaryIO, name: str, certificate_sha256: str | None) -> None:
    """Raises `VerificationFailed` unless the file is signed, as it is, and by this certificate.

    Where the manifest names no certificate any will do: the server vouches for the file as a whole, by the manifest.
    """
    from pyhanko.pdf_utils.misc import PdfError
    from pyhanko.pdf_utils.reader import PdfFileReader
    from pyhanko.sign.validation import validate_pdf_signature
    from pyhanko_certvalidator import ValidationContext

    try:
        signatures = PdfFileReader(file).embedded_signatures
        # Whether the certificate is the right one is seen below, by its hash; here it stands for itself.
        roots = [one.signer_cert for one in signatures]
        context = ValidationContext(trust_roots=roots, allow_fetching=False)
        found = [validate_pdf_signature(one, context) for one in signatures]
    except (PdfError, ValueError) as error:
        raise Malformed(f"{name} cannot be read as a signed PDF file: {error}") from None
    if not found:
        raise Malformed(f"{name} has no digital signature")
    if not all(one.intact and one.valid for one in found):
        raise WrongSignature(f"the digital signature in {name} is not right")
    used = {hashlib.sha256(one.signer_cert.dump()).hexdigest() for one in signatures}
    if certificate_sha256 is not None and used != {certificate_sha256}:
        raise Untrusted(f"the digital signature in {name} is by another certificate than the manifest names")

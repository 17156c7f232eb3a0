"""Client certificates. That one is of the configured authority, and whose key it is, TLS has made sure of."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import Denied


@dataclass(frozen=True, slots=True)
class Certificate:
    sha256: bytes
    valid_from: datetime
    valid_until: datetime

    def check_valid(self, now: datetime) -> None:
        """TLS looks only when the connection is made, and connections can last."""
        if not self.valid_from <= now <= self.valid_until:
            raise Denied(Reason.UNAUTHENTICATED, "the client certificate has expired, or is not valid yet")


@lru_cache(maxsize=1_000)
def read_certificate(pem: bytes) -> Certificate:
    try:
        found = x509.load_pem_x509_certificate(pem)
        digest = hashlib.sha256(found.public_bytes(Encoding.DER)).digest()
        return Certificate(digest, found.not_valid_before_utc, found.not_valid_after_utc)
    except ValueError as error:
        raise Denied(Reason.UNAUTHENTICATED, "the client certificate cannot be read") from error

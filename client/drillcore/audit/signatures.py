"""Electronic signatures of people, as exports show them: bound by the server's key to one version of one record."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from drillcore.audit.base64_text import from_base64
from drillcore.audit.documents import canonical_json, parse_object
from drillcore.audit.failures import Malformed, Mismatch
from drillcore.audit.keys import TrustedKeys
from drillcore.audit.notes import KEY_HASH_BYTES, SIGNATURE_BYTES

NODE: Final = "node"
FACT: Final = "fact"
_SIGNED: Final = b"drillcore signature 1\n"
_CONTENT: Final = b"drillcore signed content 1\n"
_HASH_BYTES: Final = 32
_NOT_SIGNED: Final = frozenset({"signatures", "embedding"})
_BESIDE: Final = frozenset({"manifestation", "signature", "key_hash", "content_salt"})
"""What stands beside the manifestation; everything else of a signature is in it."""


@dataclass(frozen=True, slots=True)
class CheckedSignature:
    id: str
    kind: str
    """What was signed: "node", "audit_record", "export", "review" or "fact"."""
    target: str
    version: int
    content_hash: bytes
    content_salt: bytes
    """Empty where the content was erased."""

    def check_content(self, content: Mapping[str, Any]) -> bool:
        """Whether it could be checked: not if the salt was erased. Raises `Mismatch` unless it is what was signed."""
        if self.content_salt and content_hash(self.content_salt, content) != self.content_hash:
            raise Mismatch(f"signature {self.id} is not of this content")
        return bool(self.content_salt)


def signed_manifestation(manifestation: bytes) -> bytes:
    """What the server's key signs of a signature, whose manifestation is canonical JSON."""
    return _SIGNED + manifestation


def content_hash(salt: bytes, content: Mapping[str, Any]) -> bytes:
    """What binds a signature to what was signed.

    What is signed of a node is its object without its signatures and its embedding, which another model may make anew.
    """
    signed = {name: value for name, value in content.items() if name not in _NOT_SIGNED}
    return hashlib.sha256(_CONTENT + salt + canonical_json(signed)).digest()


def check_signature_of_person(shown: object, trusted: TrustedKeys) -> CheckedSignature:
    """Raises `VerificationFailed` unless the server's key signed all that is shown of the signature."""
    if not isinstance(shown, Mapping) or not isinstance(shown.get("manifestation"), str):
        raise Malformed("a signature is shown without its manifestation")
    what = f"signature {shown.get('id')}"
    written = shown["manifestation"].encode()
    said = parse_object(written, f"the manifestation of {what}")
    if canonical_json(said) != written:
        raise Malformed(f"the manifestation of {what} is not in canonical JSON")
    signature = from_base64(shown.get("signature"), what, SIGNATURE_BYTES)
    key = trusted.key(_hex(shown.get("key_hash"), what, KEY_HASH_BYTES), what)
    key.check(signature, signed_manifestation(written), what)
    for name in shown.keys() - _BESIDE:
        if name not in said or said[name] != shown[name]:
            raise Mismatch(f"{what} is shown with another {name} than was signed")
    return _checked(said, shown, what)


def _checked(said: Mapping[str, Any], shown: Mapping[str, Any], what: str) -> CheckedSignature:
    target = said.get("target")
    if not isinstance(target, Mapping) or type(target.get("version")) is not int or not isinstance(said.get("id"), str):
        raise Malformed(f"{what} does not say what was signed")
    salt = shown.get("content_salt")
    return CheckedSignature(
        said["id"],
        str(target.get("kind")).lower(),
        str(target.get("id")),
        target["version"],
        _hex(said.get("content_hash"), what, _HASH_BYTES),
        _hex(salt, what, None) if salt else b"",
    )


def _hex(text: object, what: str, size_bytes: int | None) -> bytes:
    try:
        data = bytes.fromhex(text) if isinstance(text, str) else None
    except ValueError:
        data = None
    if data is None or data.hex() != text or size_bytes not in {None, len(data)}:
        raise Malformed(f"{what} has a hash or salt that is none")
    return data

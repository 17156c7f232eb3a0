"""Electronic signatures: of people, in bundles, and the digital signatures within PDF files."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from drillcore_formats.audit.encoding import canonical_json, from_base64, parse_object
from drillcore_formats.audit.findings import (
    Findings,
    Malformed,
    Mismatch,
    Untrusted,
    VerificationFailed,
    WrongSignature,
)
from drillcore_formats.audit.keys import TrustedKeys
from drillcore_formats.audit.notes import KEY_HASH_BYTES, SIGNATURE_BYTES

NODE: Final = "node"
FACT: Final = "fact"
_SIGNED: Final = b"drillcore signature 1\n"
_CONTENT: Final = b"drillcore signed content 1\n"
_HASH_BYTES: Final = 32
_NOT_SIGNED: Final = frozenset({"signatures", "embedding"})
_BESIDE: Final = frozenset({"manifestation", "signature", "key_hash", "content_salt"})
"""Fields that are not in the manifestation. All other fields of a signature are."""


@dataclass(frozen=True, slots=True)
class CheckedSignature:
    id: str
    kind: str
    """What was signed: "node", "audit_record", "export", "review" or "fact"."""
    target: str
    version: int
    content_hash: bytes
    content_salt: bytes
    """Empty if the content was erased."""

    def check_content(self, content: Mapping[str, Any]) -> bool:
        """Raises `Mismatch` if this is not the signed content. False if it cannot be checked: the salt was erased."""
        if self.content_salt and content_hash(self.content_salt, content) != self.content_hash:
            raise Mismatch(f"signature {self.id} is not of this content")
        return bool(self.content_salt)


def signed_manifestation(manifestation: bytes) -> bytes:
    """The bytes that the server's key signs for a signature with this manifestation in canonical JSON."""
    return _SIGNED + manifestation


def content_hash(salt: bytes, content: Mapping[str, Any]) -> bytes:
    """The hash that binds a signature to the content."""
    return hashlib.sha256(_CONTENT + salt + canonical_json(signed_part(content))).digest()


def signed_part(content: Mapping[str, Any]) -> dict[str, Any]:
    """The object without its signatures and its embedding, which another model may replace."""
    return {name: value for name, value in content.items() if name not in _NOT_SIGNED}


def check_signature_of_person(shown: object, trusted: TrustedKeys) -> CheckedSignature:
    """Raises `VerificationFailed` unless the server's key signed all that is shown about the signature."""
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
        raise Malformed(f"{what} has a hash or salt that is not hexadecimal, or of the wrong length")
    return data


class BundleSignatures:
    """Checks the signatures of a bundle: first the list, then the facts and nodes that they are about."""

    def __init__(self, trusted: TrustedKeys, found: Findings) -> None:
        self._trusted = trusted
        self._found = found
        self._of_content: dict[tuple[str, str, int], dict[str, CheckedSignature]] = {}
        """By kind, id and version of the signed record."""
        self._content_checked = 0
        self.count = 0

    def listed(self, signatures: Iterable[Any]) -> None:
        for shown in signatures:
            self.count += 1
            try:
                checked = check_signature_of_person(shown, self._trusted)
            except VerificationFailed as failure:
                self._found.blame(str(failure))
                continue
            if checked.kind in {NODE, FACT}:
                self._of_content.setdefault((checked.kind, checked.target, checked.version), {})[checked.id] = checked

    def shown(self, items: Iterable[tuple[str, Any]]) -> None:
        """Checks facts and nodes of the copy, each given with its kind."""
        for kind, item in items:
            if not isinstance(item, Mapping):
                raise Malformed(f"content.json has a {kind} that is not a JSON object")
            self._item(kind, item)

    def _item(self, kind: str, item: Mapping[str, Any]) -> None:
        version = item.get("version")
        known = self._of_content.get((kind, str(item.get("id")), version if type(version) is int else 0), {})
        shown = item.get("signatures", [])
        try:
            for signature in known.values():
                self._content_checked += signature.check_content(item)
            self._check_shown(shown, known)
        except VerificationFailed as failure:
            self._found.blame(f"{kind} {item.get('id')}: {failure}")

    def _check_shown(self, shown: object, known: Mapping[str, CheckedSignature]) -> None:
        """Raises `VerificationFailed` unless signatures.json has exactly the signatures that are shown with an item."""
        if not isinstance(shown, list):
            raise Malformed("its signatures are not a list")
        for entry in shown:
            checked = check_signature_of_person(entry, self._trusted)
            if known.get(checked.id) != checked:
                raise Mismatch(f"signature {checked.id} is shown with a record or version that it is not of")

    def end(self, nodes_shown: bool) -> None:
        unseen = self.count - self._content_checked
        if unseen and nodes_shown:
            self._found.remarks.append(
                f"{unseen} of {self.count} signatures are of records that are not in content.json, or were erased: "
                "the server recorded these signatures, but what was signed could not be checked"
            )
        elif self.count and not nodes_shown:
            self._found.remarks.append(
                f"{self.count} signatures are as the server recorded them; "
                "only the JSON copy can show that they are of this content"
            )


def can_check_pdf() -> bool:
    return importlib.util.find_spec("pyhanko") is not None


def check_pdf(file: BinaryIO, name: str, certificate_sha256: str | None) -> None:
    """Raises `VerificationFailed` unless this certificate signed the PDF file as it is. Needs pyhanko.

    If the manifest names no certificate, any will do: the manifest itself vouches for the file.
    """
    from pyhanko.pdf_utils.misc import PdfError
    from pyhanko.pdf_utils.reader import PdfFileReader
    from pyhanko.sign.validation import validate_pdf_signature
    from pyhanko_certvalidator import ValidationContext

    try:
        signatures = PdfFileReader(file).embedded_signatures
        # Each certificate is trusted here. Its hash is compared below.
        roots = [signature.signer_cert for signature in signatures]
        context = ValidationContext(trust_roots=roots, allow_fetching=False)
        found = [validate_pdf_signature(signature, context) for signature in signatures]
    except (PdfError, ValueError) as error:
        raise Malformed(f"{name} cannot be read as a signed PDF file: {error}") from None
    if not found:
        raise Malformed(f"{name} has no digital signature")
    if not all(status.intact and status.valid for status in found):
        raise WrongSignature(f"the digital signature in {name} is not right")
    used = {hashlib.sha256(root.dump()).hexdigest() for root in roots}
    if certificate_sha256 is not None and used != {certificate_sha256}:
        raise Untrusted(f"the digital signature in {name} is by another certificate than the manifest names")

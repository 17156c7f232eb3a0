"""Electronic signatures in a bundle: those that signatures.json lists, and those that stand with the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from drillcore.audit.failures import Malformed, Mismatch, VerificationFailed
from drillcore.audit.keys import TrustedKeys
from drillcore.audit.reports import Findings
from drillcore.audit.signatures import FACT, NODE, CheckedSignature, check_signature_of_person


class BundleSignatures:
    """Sees the list first, then facts and nodes. Each signature is checked once, its content where that is shown."""

    def __init__(self, trusted: TrustedKeys, found: Findings) -> None:
        self._trusted = trusted
        self._found = found
        self._of_content: dict[tuple[str, str, int], dict[str, CheckedSignature]] = {}
        """By kind, id and version of what was signed."""
        self._content_checked = 0
        self.count = 0

    def listed(self, signatures: Iterable[Any]) -> None:
        for shown in signatures:
            self.count += 1
            try:
                one = check_signature_of_person(shown, self._trusted)
            except VerificationFailed as failure:
                self._found.blame(str(failure))
                continue
            if one.kind in {NODE, FACT}:
                self._of_content.setdefault((one.kind, one.target, one.version), {})[one.id] = one

    def shown(self, items: Iterable[tuple[str, Any]]) -> None:
        """Facts and nodes of the copy, each with its kind."""
        for kind, item in items:
            if not isinstance(item, Mapping):
                raise Malformed(f"content.json has a {kind} that is none")
            self._item(kind, item)

    def _item(self, kind: str, item: Mapping[str, Any]) -> None:
        version = item.get("version")
        known = self._of_content.get((kind, str(item.get("id")), version if type(version) is int else 0), {})
        shown = item.get("signatures", [])
        try:
            for one in known.values():
                self._content_checked += one.check_content(item)
            self._check_shown(shown, known)
        except VerificationFailed as failure:
            self._found.blame(f"{kind} {item.get('id')}: {failure}")

    def _check_shown(self, shown: object, known: Mapping[str, CheckedSignature]) -> None:
        """What stands with one must be what signatures.json has of it, word for word, or be right by itself."""
        if not isinstance(shown, list):
            raise Malformed("its signatures are no list")
        for entry in shown:
            one = check_signature_of_person(entry, self._trusted)
            if known.get(one.id) != one:
                raise Mismatch(f"signature {one.id} is shown with a record or version that it is not of")

    def end(self, nodes_shown: bool) -> None:
        unseen = self.count - self._content_checked
        if unseen and nodes_shown:
            self._found.remarks.append(
                f"{unseen} of {self.count} signatures are of what is not in content.json, or was erased: "
                "that the server recorded them was checked, not what they are of"
            )
        elif self.count and not nodes_shown:
            self._found.remarks.append(
                f"{self.count} signatures are as the server recorded them; "
                "that they are of this content can be checked in the JSON copy"
            )

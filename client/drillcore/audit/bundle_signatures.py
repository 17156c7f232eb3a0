"""Electronic signatures in a bundle: those that signatures.json lists, and those that stand with the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from drillcore.audit.failures import Malformed, Mismatch, VerificationFailed
from drillcore.audit.keys import TrustedKeys
from drillcore.audit.reports import Findings
from drillcore.audit.signatures import NODE, CheckedSignature, check_signature_of_person


class BundleSignatures:
    """Sees the list first, then the nodes. Each signature is checked once, its content where the node is shown."""

    def __init__(self, trusted: TrustedKeys, found: Findings) -> None:
        self._trusted = trusted
        self._found = found
        self._of_nodes: dict[tuple[str, int], dict[str, CheckedSignature]] = {}
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
            if one.kind == NODE:
                self._of_nodes.setdefault((one.target, one.version), {})[one.id] = one

    def nodes(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            if not isinstance(node, Mapping):
                raise Malformed("content.json has a node that is none")
            self._node(node)

    def _node(self, node: Mapping[str, Any]) -> None:
        version = node.get("version")
        known = self._of_nodes.get((str(node.get("id")), version if type(version) is int else 0), {})
        shown = node.get("signatures", [])
        try:
            for one in known.values():
                self._content_checked += one.check_content(node)
            self._check_shown(shown, known)
        except VerificationFailed as failure:
            self._found.blame(f"node {node.get('id')}: {failure}")

    def _check_shown(self, shown: object, known: Mapping[str, CheckedSignature]) -> None:
        """What stands with a node must be what signatures.json has of it, word for word, or be right by itself."""
        if not isinstance(shown, list):
            raise Malformed("its signatures are no list")
        for entry in shown:
            one = check_signature_of_person(entry, self._trusted)
            if known.get(one.id) != one:
                raise Mismatch(f"signature {one.id} is shown with a node or version that it is not of")

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

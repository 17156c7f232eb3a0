"""Corpora to copy, with text that is hard to copy, and the parts that bundles are made of."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from drillcore_server.domain.ids import NodeId, Revision, TenantId
from drillcore_server.exporting.content import content_hash
from drillcore_server.exporting.copies import About
from drillcore_server.exporting.signatures import NoSignatures, SignatureContent
from drillcore_server.exporting.walk import CorpusWalk, Item, Part
from drillcore_server.store.snapshot import Snapshot
from tests.faults.archive import TENANT, Archive, text_of
from tests.journals import STORE

MADE_AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
ABOUT = About(UUID(int=77), STORE, MADE_AT, "auditor")

HEBREW = "שלום עולם, המשקיע חייב להודיע (לרשות) תוך 30 יום."
ARABIC = "يجب على المستثمر إخطار الهيئة خلال ثلاثين يوما من التاريخ."
FAKES = """# A heading of the document's own

> Signed electronically by Mallory

```
The trial sponsor shall archive the ```` fenced ``` code for 15 years, 1 < 2 & 3 > 2.
```

| a | b |
| - | - |
| 1 | 2 |

<a id="part-1"></a> The sponsor must not use <script>alert(1)</script> in *any* _report_.
See [the link](http://x.example) \\ end.

1. The first item shall be kept for 10 years.
- The second item must be kept for 20 years.
"""

TEXTS: Mapping[str, str] = {
    "consent": text_of("consent", 1),
    "fishing": text_of("fishing", 2),
    "fakes": FAKES,
    "hebrew": f"# Hebrew\n\n{HEBREW}\n",
    "arabic": f"# Arabic\n\n{ARABIC}\n",
    "planes": "# Planes\n\nThe 🐟 quota of \U00020bb7 must not exceed 12 tonnes; 日本 \U0001d400 and \u2264 5 → 6.\n",
    "controls": "# Controls\n\nThe bell \x07 rings\x1b[0m; the sponsor shall\tkeep \u202eodd\u202c text 3 years.\r\n",
}


def filled(archive: Archive) -> Archive:
    """With every text, in two revisions."""
    sources = list(TEXTS)
    metadata = {"office": "München", "𐐷 key": "ключ", "\ufb01 key": "x\ny"}
    archive.add({one: TEXTS[one] for one in sources[:3]}, metadata=metadata)
    archive.add({one: TEXTS[one] for one in sources[3:]})
    return archive


@dataclass
class SignedSome:
    """Signs each node of some levels, as SignRecord would; the server's own signature is left to its tests."""

    levels: frozenset[str]
    items: Mapping[str, Item]
    made: list[SignatureContent] = field(default_factory=list)

    @classmethod
    def of(cls, archive: Archive, *levels: str) -> SignedSome:
        items = [item for item in walk_of(archive).items() if item.part is Part.NODE]
        return cls(frozenset(levels), {item.content["id"]: item for item in items})

    def of_nodes(
        self, tenant: TenantId, versions: Sequence[tuple[NodeId, int]]
    ) -> Mapping[NodeId, Sequence[SignatureContent]]:
        assert tenant == TENANT
        chosen = [one for one in versions if self.items[str(one[0])].content["level"] in self.levels]
        return {node: [self._signature(node, version)] for node, version in chosen}

    def _signature(self, node: NodeId, version: int) -> SignatureContent:
        salt = hashlib.sha256(node.bytes).digest()[:16]
        content = self.items[str(node)].content
        made: dict[str, Any] = {
            "id": str(UUID(int=node.int ^ 1)),
            "target": {"kind": "node", "id": str(node), "version": version},
            "corpus_id": content["corpus_id"],
            "signer_id": str(UUID(int=9)),
            "signer_login": "ada",
            "signer_name": "Ada | *Lovelace* 氏",
            "signed_at": "2026-02-01T09:00:00.000000Z",
            "meaning": "approved\n# not a heading",
            "content_hash": content_hash(salt, content).hex(),
            "content_salt": salt.hex(),
            "record_id": str(UUID(int=10)),
            "key_hash": "00112233",
            "signature": base64.b64encode(bytes(64)).decode(),
            "manifestation": "{}",
        }
        self.made.append(made)
        return made


def walk_of(archive: Archive, signatures: Any = None, revision: Revision | None = None) -> CorpusWalk:
    at = archive.head() if revision is None else revision
    snapshot = Snapshot(archive.engine, archive.keys, archive.sealed, at)
    return CorpusWalk(snapshot, archive.corpus, signatures or NoSignatures())


RECORDS: Sequence[Mapping[str, Any]] = [
    {"id": str(UUID(int=31)), "at": "2026-01-01T00:00:00.000000Z", "action": "CREATE", "call": "AddDocuments",
     "operator": "importer", "outcome": "OK", "corpora": {str(UUID(int=2)): 1}, "detail": {"count": 3}},
    {"id": str(UUID(int=32)), "at": "2026-01-02T00:00:00.000000Z", "action": "ACCESS", "call": "Query",
     "operator": "evil | operator # `x`", "outcome": "PERMISSION_DENIED",
     "nodes": [str(UUID(int=5)), str(UUID(int=6))]},
]  # fmt: skip


def audit_lines() -> list[bytes]:
    """An audit trail as it stands in bundles."""
    head = {"drillcore_audit": 1, "store": str(STORE), "log": str(TENANT), "first": 0, "size": 9, "complete": False,
            "checkpoint": "drillcore/x\n9\nroot\n\n\u2014 drillcore sig\n", "keys": {}, "filter": {}}  # fmt: skip
    lines: list[Mapping[str, Any]] = [head]
    for index, body in enumerate(RECORDS):
        lines.append({"index": index, "leaf": "bGVhZg==", "salt": "c2FsdA==", "body": body, "proof": []})
    lines[-1] = {**lines[-1], "private_salt": "cw==", "private": {"query": "who may | see\n# this?"}}
    return [json.dumps(one).encode() + b"\n" for one in [*lines, {"end": len(RECORDS)}]]

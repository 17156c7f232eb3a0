"""An honest bundle, file by file, to be changed before it is packed."""

from __future__ import annotations

import hashlib
import io
import uuid
import zipfile
from dataclasses import dataclass, field
from typing import Any

from drillcore_formats.audit.notes import make_note
from tests.support.data.audit_logs import NOW, Key, Line, Log, base64_text, canonical, make_log, written

EXPORT = uuid.UUID("e7904700-0000-4000-8000-000000000001")
CORPUS = "c0490500-0000-4000-8000-000000000001"


def make_signature(node: Line, key: Key, number: int = 1, **changed: Any) -> Line:
    """The signature of a person, as the server makes it."""
    salt = hashlib.sha256(f"salt {number}".encode()).digest()[:16]
    content = {name: value for name, value in node.items() if name != "signatures"}
    said = {
        "id": str(uuid.UUID(int=number)),
        "target": {"kind": "node", "id": node["id"], "version": node["version"]},
        "corpus_id": CORPUS,
        "signer_id": "alice",
        "signer_login": "alice",
        "signer_name": "Alice Ångström",
        "signed_at": NOW,
        "meaning": "approved",
        "content_hash": hashlib.sha256(b"drillcore signed content 1\n" + salt + canonical(content)).hexdigest(),
        "record_id": str(uuid.UUID(int=number + 100)),
        "key_hash": key.verifier.key_hash.hex(),
        **changed,
    }
    manifestation = canonical(said)
    signature = base64_text(key.sign(b"drillcore signature 1\n" + manifestation))
    return {**said, "content_salt": salt.hex(), "signature": signature, "manifestation": manifestation.decode()}


def make_nodes() -> list[Line]:
    return [
        {"id": str(uuid.UUID(int=1000 + number)), "version": number + 1, "summary": f"nödes {number}", "weight": 0.25}
        for number in range(3)
    ]


@dataclass
class Bundle:
    log: Log = field(default_factory=make_log)
    nodes: list[Line] = field(default_factory=make_nodes)
    signatures: list[Line] = field(default_factory=list)
    content_name: str = "content.json"
    files: dict[str, bytes] = field(default_factory=dict)
    """In the order in which they are packed. The manifest and its note are not among them."""

    @property
    def key(self) -> Key:
        return self.log.keys[-1]

    def sign(self, place: int, number: int = 1) -> Line:
        signature = make_signature(self.nodes[place], self.key, number)
        self.nodes[place].setdefault("signatures", []).append(signature)
        self.signatures.append(signature)
        return signature

    def make(self, *, audit: bool = True) -> Bundle:
        content = {"corpus": {"id": CORPUS}, "nodes": self.nodes, "parents": [None], "revision": 5}
        self.files = {
            self.content_name: canonical(content) if self.content_name == "content.json" else b"# Copy\n",
            "checkpoint": self.log.checkpoint().encode(),
            "keys.json": canonical(self.log.chain.document()),
            "signatures.json": canonical({"signatures": self.signatures}),
        }
        if audit:
            self.files["audit.ndjson"] = written(self.log.export())
        return self

    def manifest(self, **changed: Any) -> bytes:
        listed = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in self.files.items()
        }
        content = self.files.get("content.json", b"")
        return canonical(
            {
                "drillcore_bundle": 1,
                "export_id": str(EXPORT),
                "store": str(self.log.store),
                "tenant": str(self.log.log),
                "corpus": {"id": CORPUS},
                "revision": 5,
                "format": "json",
                "made_at": NOW,
                "made_by": "alice",
                "content_digest": hashlib.sha256(content).hexdigest(),
                "files": listed,
                "record": {},
                **changed,
            }
        )

    def note(self, manifest: bytes, key: Key | None = None) -> bytes:
        key = key or self.key
        text = f"drillcore-{self.log.store}/export\n{EXPORT}\n{hashlib.sha256(manifest).hexdigest()}\n"
        return make_note(text, (key.verifier, key.sign)).encode().encode()

    def members(self) -> dict[str, bytes]:
        manifest = self.manifest()
        return {"manifest.json": manifest, "manifest.note": self.note(manifest), **self.files}


def packed(members: dict[str, bytes], **infos: zipfile.ZipInfo) -> io.BytesIO:
    """A ZIP file, deflated; `infos` are used for members instead of plain ones."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(infos.get(name, name), data)
    file.seek(0)
    return file

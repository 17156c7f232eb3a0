"""Corpora for tests of exports: text that is hard to copy, signatures, an audit log, and the parts of bundles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import structlog

from drillcore_formats.audit.encoding import canonical_json
from drillcore_formats.audit.pins import Pins
from drillcore_formats.audit.signatures import content_hash, signed_manifestation
from drillcore_server.audit.log_writer import LogWriter
from drillcore_server.audit.search import LogSearch, Terms
from drillcore_server.audit.sequencer import Sequencer
from drillcore_server.audit.signing_keys import KeyFiles
from drillcore_server.exports.bundle import Binder, CorpusTrail, Trails
from drillcore_server.exports.content import ContentSignatures
from drillcore_server.exports.copies import About
from drillcore_server.exports.pdf.pdf_signature import PdfOptions, PdfSigner
from drillcore_server.exports.walk import CorpusWalk, Part
from drillcore_server.hierarchy.signable import Content
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.journal import SigningKeys
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.model import Signature, Target, TargetKind
from drillcore_server.storage.audit_records import RecordOpener
from drillcore_server.storage.ids import AccountId, RecordId, Revision, new_uuid
from drillcore_server.storage.keyring import CORPUS_SCOPE
from tests.support.stores.archive import Archive, opened_archive, text_of
from tests.support.stores.journals import STORE

MADE_AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
ABOUT = About(UUID(int=77), STORE, MADE_AT, "auditor")
SIGNER = "Ada | *Lovelace* \u6c0f"
MEANING = "approved\n# not a heading"
SIGNED_AT = "2026-02-01T09:00:00.000000Z"

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


def fill(archive: Archive) -> None:
    """Adds every text, in two revisions."""
    sources = list(TEXTS)
    metadata = {"office": "München", "𐐷 key": "ключ", "\ufb01 key": "x\ny"}
    archive.add({source: TEXTS[source] for source in sources[:3]}, metadata=metadata)
    archive.add({source: TEXTS[source] for source in sources[3:]})


@dataclass
class Desk:
    """A corpus, and all the parts that copy it."""

    archive: Archive
    signing: SigningKeys
    trails: Trails
    pdf: PdfOptions

    def walk(self, revision: Revision | None = None) -> CorpusWalk:
        archive = self.archive
        at = archive.head() if revision is None else revision
        snapshot = BatchedReads(archive.engine, archive.corpus, archive.keys, archive.sealed, at)
        signed = ContentSignatures(archive.engine, archive.keyspace, archive.keyring)
        return CorpusWalk(snapshot, archive.corpus, signed)

    def binder(self) -> Binder:
        return Binder(self.trails, self.pdf)

    def trail(self) -> CorpusTrail:
        self.sequence()
        return self.trails.of_corpus(self.archive.corpus.tenant_id, self.archive.corpus.id)

    @property
    def pins(self) -> Pins:
        return Pins((self.signing.signer(1).verifier,))

    def sequence(self) -> None:
        """Puts all waiting audit records into the log."""
        archive, opener = self.archive, RecordOpener(STORE, self.archive.sealed)
        writer = LogWriter(archive.keyspace, opener, Terms(archive.keyring), self.signing)
        log = structlog.get_logger()
        sequencer = Sequencer(archive.engine, archive.keyspace, writer, 10.0, log, lambda *_: None, alone=True)
        while (done := sequencer.step()) is not None and done.more:
            continue

    def sign(self, *levels: str) -> list[Signature]:
        """Signs every node of some levels, in its present version."""
        items = [item for item in self.walk().items() if item.part is Part.NODE]
        made = [self._signature(item.content) for item in items if item.content["level"] in levels]
        for signature in made:
            self.archive.engine.run(lambda tr, s=signature: signatures.add(tr, self.archive.keyspace, s))
        return made

    def _signature(self, node: Content) -> Signature:
        archive, key = self.archive, self.signing.signer(1)
        chunk = node["id"] if node["level"] == "chunk" else None
        scope = node["source_id"] if chunk else CORPUS_SCOPE
        sealed_by = tuple(archive.keyring.numbers(archive.corpus.number, [scope]))
        target = Target(TargetKind.NODE, UUID(node["id"]), node["version"])
        hashed = content_hash(signatures.salt(archive.keyring, target, sealed_by), node)
        unsigned = Signature(
            new_uuid(), target, archive.corpus.tenant_id, archive.corpus.id, AccountId(UUID(int=9)), "ada", SIGNER,
            datetime.fromisoformat(SIGNED_AT), MEANING, hashed, RecordId(UUID(int=10)), key.key_hash, b"", "",
            sealed_by,
        )  # fmt: skip
        said = canonical_json(manifestation(unsigned))
        return replace(unsigned, manifestation=said.decode(), signature=key.sign(signed_manifestation(said)))


def manifestation(signature: Signature) -> Mapping[str, object]:
    target = signature.target
    return {
        "id": str(signature.id),
        "target": {"kind": "node", "id": str(target.id), "version": target.version},
        "corpus_id": str(signature.corpus),
        "signer_id": str(signature.signer),
        "signer_login": signature.signer_login,
        "signer_name": signature.signer_name,
        "signed_at": SIGNED_AT,
        "meaning": signature.meaning,
        "content_hash": signature.content_hash.hex(),
        "record_id": str(signature.record),
        "key_hash": signature.key_hash.hex(),
    }


@contextlib.contextmanager
def opened_desk(path: Path) -> Iterator[Desk]:
    with opened_archive(path) as archive:
        keeper = KeyFiles(path / "audit" / "keys")
        signing = SigningKeys.open(archive.engine, archive.keyspace, STORE, keeper, datetime.now(UTC))
        search = LogSearch(archive.keyspace, RecordOpener(STORE, archive.sealed), Terms(archive.keyring))
        trails = Trails(archive.engine, archive.keyspace, search, signing)
        pdf = PdfOptions(PdfSigner.made_in(path / "audit", STORE))
        yield Desk(archive, signing, trails, pdf)

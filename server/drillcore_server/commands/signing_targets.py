"""What can be signed: how each kind is found, who may sign it, and what a signature of it covers.

kind           content                                         sealed under
node           its object in the JSON copy, without vector     the keys of its sources
audit record   leaf and body                                   the key of its log
export         what it is of, and the hash of its bundle       the key of the corpus
review         range, root and findings                        the key of the log that was reviewed
fact           its object in the JSON copy                     the key of its source
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson

from drillcore.audit.base64_text import to_base64
from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.audit.journal import log_key, log_of
from drillcore_server.audit.opening import RecordOpener
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted, InTenant, Rule
from drillcore_server.auth.principal import Principal
from drillcore_server.commands.audit_logs import WhichLog, auditing
from drillcore_server.commands.fact_library import corpus_of, missing_fact
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Missing, Stale
from drillcore_server.domain.exports import export_content
from drillcore_server.domain.found import AsOf, ChunkText, Node, RawText
from drillcore_server.domain.ids import CorpusId, FactId, NodeId, RecordId, TenantId
from drillcore_server.domain.nodes import Level, Section
from drillcore_server.domain.reviews import review_content
from drillcore_server.domain.signatures import Target, TargetKind
from drillcore_server.exporting.content import content_hash, fact_content, node_content, signed
from drillcore_server.store import audit_log, audit_records, exports, reviews
from drillcore_server.store.facts import FactsView
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import CORPUS_SCOPE, KeyNumber
from drillcore_server.store.signatures import salt

OF_LOGS: Final = frozenset({TargetKind.AUDIT_RECORD, TargetKind.REVIEW})
_FIXED: Final = 1
"""The version of what never changes."""


@dataclass(frozen=True, slots=True)
class FoundTarget:
    target: Target
    """At the version that it has now."""
    content: Mapping[str, Any]
    sealed_by: tuple[KeyNumber, ...]
    corpus: CorpusId | None = None


class Targets:
    def __init__(self, library: Library, opener: RecordOpener) -> None:
        self._library = library
        self._opener = opener
        self._keys = library.unit.keys
        self._finders: Mapping[TargetKind, Callable[[Reader, Any, Trail, UUID], FoundTarget]] = {
            TargetKind.NODE: self._node,
            TargetKind.AUDIT_RECORD: self._record,
            TargetKind.EXPORT: self._export,
            TargetKind.REVIEW: self._review,
            TargetKind.FACT: self._fact,
        }

    def rule(self, principal: Principal, tenant: TenantId | None, kind: TargetKind) -> Rule[Granted]:
        """Who may sign what is of this kind. What is of no tenant is the server's own."""
        if kind in OF_LOGS:
            return auditing(WhichLog(tenant, principal.tenant is None and tenant is None))
        return access.in_tenant(tenant, Permission.SIGN)

    def find(self, tr: Reader, granted: Granted, trail: Trail, target: Target) -> FoundTarget:
        """What is to be signed. Raises `Missing`, or `Stale` if it is at another version than the one asked for."""
        trail.detail["target"] = {"kind": target.kind.word, "id": str(target.id), "version": target.version}
        found = self._finders[target.kind](tr, granted, trail, target.id)
        version = found.target.version
        if target.version not in {0, version}:
            message = f"it is at version {version}, not {target.version}; look at it again before you sign"
            raise Stale(Reason.VERSION_MISMATCH, message, version=str(version))
        trail.detail["target"]["version"] = version
        return found

    def hashed(self, found: FoundTarget) -> bytes:
        """What a signature is bound to."""
        return content_hash(salt(self._library.keyring, found.target, found.sealed_by), found.content)

    def _node(self, tr: Reader, granted: InTenant, trail: Trail, target: UUID) -> FoundTarget:
        node = NodeId(target)
        trail.touch_node_ids([node])
        shelf, level = self._library.shelf_of(tr, granted, trail, node, AsOf())
        granted.check_level(shelf.corpus.id, level)
        found = shelf.node(node, level)
        trail.touch_nodes([found], shelf.corpus.number)
        sealed_by = shelf.view.sealed_by(_record_key(shelf.view, found))
        return FoundTarget(
            Target(TargetKind.NODE, target, found.version), signed(node_content(found)), sealed_by, shelf.corpus.id
        )

    def _fact(self, tr: Reader, granted: InTenant, trail: Trail, target: UUID) -> FoundTarget:
        wanted = FactId(target)
        trail.touch_node_ids([NodeId(target)])
        corpus = corpus_of(tr, self._library, granted, wanted)
        shelf = self._library.shelf(tr, granted, trail, corpus, AsOf())
        granted.check_level(corpus, Level.CHUNK)
        fact = FactsView(shelf.view).fact(wanted)
        if fact is None:
            raise missing_fact(wanted)
        trail.touch_facts([fact], shelf.corpus.number)
        sealed_by = shelf.view.sealed_by(shelf.view.keys.fact(wanted))
        return FoundTarget(Target(TargetKind.FACT, target, fact.version), fact_content(fact, corpus), sealed_by, corpus)

    def _record(self, tr: Reader, granted: Granted, _trail: Trail, target: UUID) -> FoundTarget:
        log = log_of(granted.tenant)
        place = audit_log.place_of(tr, self._keys, RecordId(target))
        entry = None if place is None or place.log != log else audit_log.entry(tr, self._keys, log, place.index)
        stored = None if entry is None else audit_records.get(tr, self._keys, entry.position)
        if entry is None or stored is None:
            raise Missing(Reason.AUDIT_RECORD_NOT_FOUND, f"the log has no record {target}, or does not have it yet")
        opened = self._opener.open(stored, entry.position)
        content = {"leaf": to_base64(opened.leaf.encode()), "body": orjson.loads(opened.body)}
        return self._of_log(Target(TargetKind.AUDIT_RECORD, target, _FIXED), content, log)

    def _export(self, tr: Reader, granted: InTenant, trail: Trail, target: UUID) -> FoundTarget:
        """An export of a corpus that is not granted, or was deleted, is not there."""
        export = exports.find(tr, self._keys, granted.tenant, target)
        if export is None or not granted.reaches(export.corpus):
            raise Missing(Reason.SIGNATURE_NOT_FOUND, f"there is no export {target}")
        corpus = granted.corpus(tr, self._keys, export.corpus)
        trail.touch_corpus(corpus.id, export.revision)
        sealed_by = tuple(self._library.keyring.numbers(corpus.number, [CORPUS_SCOPE]))
        signed = Target(TargetKind.EXPORT, target, _FIXED)
        return FoundTarget(signed, export_content(export), sealed_by, corpus.id)

    def _review(self, tr: Reader, granted: Granted, _trail: Trail, target: UUID) -> FoundTarget:
        log = log_of(granted.tenant)
        review = reviews.find(tr, self._keys, self._library.sealed, log, target)
        if review is None:
            raise Missing(Reason.SIGNATURE_NOT_FOUND, f"there is no review {target}")
        return self._of_log(Target(TargetKind.REVIEW, target, _FIXED), review_content(review), log)

    def _of_log(self, target: Target, content: Mapping[str, Any], log: UUID) -> FoundTarget:
        return FoundTarget(target, content, (log_key(self._library.keyring, log),))


def _record_key(view: CorpusView, node: Node) -> bytes:
    """Of the record that a node is in."""
    if isinstance(node.content, ChunkText | RawText):
        return view.keys.chunk(node.content.chunk.id)
    return view.keys.section(node.id) if isinstance(node.content, Section) else view.keys.master()

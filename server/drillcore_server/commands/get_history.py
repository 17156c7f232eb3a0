"""GetHistory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library, Shelf, missing
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, NodeId, Revision, TenantId
from drillcore_server.domain.nodes import Level, chunk_of_raw
from drillcore_server.domain.pages import make_token, page_size, read_token
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.store import revisions, trimming, versioned
from drillcore_server.store.writes import is_ingested_chunk


@dataclass(frozen=True, slots=True)
class History:
    revisions: Sequence[RevisionRecord]
    oldest: Revision
    """The oldest revision that can still be read; 0 if none was trimmed."""
    next_token: str


def get_history(
    library: Library,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId | None,
    node: NodeId | None,
    size: int,
    token: str,
) -> History:
    """The revisions of a corpus, or those that changed a node, newest first.

    Revisions that are trimmed are still listed for a corpus; for a node, those that the store still has.
    """
    if (corpus is None) == (node is None):
        raise BadInput(Reason.INVALID_ARGUMENT, "name either a corpus or a node", field="corpus_id")
    wanted = page_size(size)
    listing = f"history of {corpus or node}"
    cursor = read_token(listing, token)
    below = int.from_bytes(cursor, "big") if cursor else None

    def work(tr: Reader, granted: InTenant, trail: Trail) -> History:
        shelf, changed = _numbers(library, tr, granted, trail, corpus, node)
        chosen = list(islice((one for one in changed if below is None or one < below), wanted + 1))
        records = [revisions.get(tr, shelf.view.keys, one) for one in chosen[:wanted]]
        more = make_token(listing, chosen[wanted - 1].to_bytes(6, "big")) if len(chosen) > wanted else ""
        oldest = trimming.floor(tr, shelf.view.keys)
        return History([record for record in records if record is not None], oldest, more)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _numbers(
    library: Library, tr: Reader, granted: InTenant, trail: Trail, corpus: CorpusId | None, node: NodeId | None
) -> tuple[Shelf, Iterator[Revision]]:
    if corpus is not None:
        shelf = library.shelf(tr, granted, trail, corpus, AsOf())
        return shelf, (Revision(one) for one in range(shelf.revision, 0, -1))
    assert node is not None
    trail.touch_node_ids([node])
    shelf, level = library.shelf_of(tr, granted, trail, node, AsOf())
    granted.check_level(shelf.corpus.id, level)
    keys = _raw_keys(library, tr, shelf, node) if level is Level.RAW else [_key(shelf, node, level)]
    written = {revision for key in keys for revision, _ in versioned.history(tr, key)}
    if not written:
        raise missing(node)
    newest_first = sorted((one for one in written if one <= shelf.revision), reverse=True)
    if level is Level.MASTER:
        return shelf, (one for one in newest_first if shelf.at(one).master_id == node)
    return shelf, iter(newest_first)


def _key(shelf: Shelf, node: NodeId, level: Level) -> bytes:
    """The key that is written when the node changes."""
    if level is Level.MASTER:
        return shelf.view.keys.master()
    return shelf.view.keys.section(node) if level is Level.SECTION else shelf.view.keys.chunk(node)


def _raw_keys(library: Library, tr: Reader, shelf: Shelf, raw: NodeId) -> list[bytes]:
    """An ingested raw changes with its chunk. One that a client put has a key of its own, and may have been both."""
    keys, (chunk, _) = shelf.view.keys, chunk_of_raw(raw)
    locator = tr.get(library.unit.keys.locator(shelf.corpus.tenant_id, chunk))
    ingested = locator is not None and is_ingested_chunk(locator)
    return [keys.parent(raw), keys.chunk(chunk)] if ingested else [keys.parent(raw)]

"""The store's header: which layout of keys and values it holds, and whether this software may open it.

1  tenants, corpora, request outcomes, documents; records are maps. Before the first release, and no longer read
2  the same and hierarchies of clients; records are arrays, a chunk and its raws are one. Likewise
3  the same with the audit log, accounts and manifests of revisions. Likewise
4  the same with facts, their vectors and communities, and the feed of changes. Likewise
5  the same with the words of facts, and envelopes. Likewise
6  the same with quads, knowledge cores of others, and conversation graphs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_fdb.errors import StoreCorruptError, UnavailableError
from drillcore_fdb.tuples import Subspace

FORMAT_VERSION: Final = 6
STORE_PATH: Final = ("drillcore",)
_HEADER: Final = 0
"""The header's subspace; `keyspace.Space` numbers the others from 1."""


@dataclass(frozen=True, slots=True)
class StoreHeader:
    format_version: int
    store_id: UUID
    """A random id, made once. No two stores have the same id."""


def open_store(engine: Engine) -> tuple[Subspace, StoreHeader]:
    """The store's key prefix and header, both made on first use.

    Raises `UnavailableError` for a store of another format, and does not change it.
    """
    root = engine.directory(*STORE_PATH)
    new = StoreHeader(FORMAT_VERSION, uuid4())
    header = engine.run(lambda tr: _read_or_make(tr, root, new), Options(idempotent=True))
    if header.format_version > FORMAT_VERSION:
        raise UnavailableError(
            f"the store has format {header.format_version}, this Drillcore knows up to {FORMAT_VERSION}; "
            "upgrade Drillcore, the store was not touched"
        )
    if header.format_version < FORMAT_VERSION:
        raise UnavailableError(
            f"the store has format {header.format_version}, from before the first release; this Drillcore reads "
            f"{FORMAT_VERSION}. Begin with a new data directory and add the documents again; the store was not touched"
        )
    return root, header


def _read_or_make(tr: Transaction, root: Subspace, new: StoreHeader) -> StoreHeader:
    key = root.pack((_HEADER,))
    stored = codec.read(tr, key)
    if stored is None:
        codec.write(tr, key, codec.encode({"format": new.format_version, "store": str(new.store_id)}))
        return new
    record = codec.decode(stored)
    try:
        format_version, store_id = record["format"], UUID(record["store"])
        if type(format_version) is not int or format_version < 1:
            raise ValueError(f"format {format_version!r}")
        return StoreHeader(format_version, store_id)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise StoreCorruptError(f"the store's header cannot be read: {error!r}") from error

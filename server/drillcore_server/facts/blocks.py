"""Blocks of facts: the facts of a chunk, or some facts of one source that were put together, are one record.

The ids of a block's facts are made from the block's id and a place, so a fact needs neither a record nor a locator of
its own. The block of the facts that were drawn from a chunk has the chunk's id. A fact whose id a caller chose is alone
in its block, which has the fact's id. Facts stay in their block for ever: a fact that a later document repeats keeps
its id, and its block then names another chunk.

A block is stored by columns. A column in which all facts have the same value has it once, and none at all if that is
the value that most facts have. The vectors of its facts are another record, one for each embedding model:

    number of facts that have one (2), the last two bytes of the id of each, the vector of each
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final, TypeVar
from uuid import UUID

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.facts.model import Fact, FactStatus, fact_hash
from drillcore_server.hierarchy.model import FACTS_FROM, id_within, ids_within, new_chunk_id
from drillcore_server.storage.ids import BlockId, DocumentId, FactId, NodeId, PrincipalId, SourceId, Span
from drillcore_server.storage.records import RecordKind

T = TypeVar("T")
FACTS_MAX: Final = 32
"""Facts that are put together in one block: a change of one of them writes the whole block again."""
CHARACTERS_MAX: Final = 30_000
"""Characters of facts that are put together in one block."""
_PLACE_BYTES: Final = 2
_PLACE_MASK: Final = (1 << 8 * _PLACE_BYTES) - 1
_FOUR_DIGITS: Final = 10_000


def fact_in_block(block: BlockId, place: int) -> FactId:
    """The id of the fact at a place, counted from 0, of a block that the server made."""
    assert place < FACTS_FROM, "a block is smaller than that"
    return FactId(id_within(NodeId(block), FACTS_FROM + place))


def block_of(fact: FactId) -> BlockId:
    """The block of a fact whose id was made by `fact_in_block`; else the fact's own block."""
    owner, place = ids_within(NodeId(fact))
    return BlockId(owner if place >= FACTS_FROM else fact)


def new_fact_ids(drafts: Sequence[tuple[SourceId, NodeId | None, str]]) -> list[FactId]:
    """Ids for new facts, given by source, chunk and content, in new blocks: those of one source and chunk together."""
    made: list[FactId] = []
    open_blocks: dict[tuple[SourceId, NodeId | None], tuple[BlockId, int, int]] = {}
    for source, chunk, content in drafts:
        block, facts, characters = open_blocks.get((source, chunk), (_NONE, FACTS_MAX, 0))
        if facts == FACTS_MAX or characters + len(content) > CHARACTERS_MAX:
            block, facts, characters = BlockId(new_chunk_id()), 0, 0
        made.append(fact_in_block(block, facts))
        open_blocks[source, chunk] = block, facts + 1, characters + len(content)
    return made


_NONE: Final = BlockId(UUID(int=0))


@dataclass(frozen=True, slots=True)
class FactBlock:
    """Facts of one source, in the order of their ids."""

    id: BlockId
    facts: tuple[Fact, ...]

    @property
    def source(self) -> SourceId:
        return self.facts[0].source

    def fact(self, id_: FactId) -> Fact | None:
        return next((fact for fact in self.facts if fact.id == id_), None)

    def changed(self, changes: Mapping[FactId, Fact]) -> FactBlock:
        """The block with other versions of some of its facts."""
        return FactBlock(self.id, tuple(changes.get(fact.id, fact) for fact in self.facts))


def gathered(facts: Iterable[Fact], may_share: Callable[[BlockId], bool]) -> Iterator[FactBlock]:
    """The blocks of facts that come in the order of their ids.

    `may_share` tells whether facts whose ids look made from this block's may be together in it. If not, or if they are
    of several sources, each is alone in a block of its own.
    """
    for block, together in groupby(facts, lambda fact: block_of(fact.id)):
        yield from _blocks(list(together), is_shared=may_share(block))


def _blocks(facts: Sequence[Fact], *, is_shared: bool) -> Iterator[FactBlock]:
    if is_shared and len({fact.source for fact in facts}) == 1:
        yield FactBlock(block_of(facts[0].id), tuple(facts))
    else:
        yield from (FactBlock(BlockId(fact.id), (fact,)) for fact in facts)


@dataclass(frozen=True, slots=True)
class _PackedBlock:
    """Each column has a value for each fact, or one for all of them, or none if it is the usual one."""

    source: SourceId
    places: tuple[int, ...]
    """The last two bytes of the ids."""
    content: tuple[str, ...]
    tokens: tuple[int, ...]
    source_location: tuple[str, ...]
    importance: tuple[int | float, ...]
    ingested_at: tuple[datetime, ...]
    modified_at: tuple[datetime, ...]
    created_by: tuple[PrincipalId, ...]
    metadata: tuple[Mapping[str, str], ...] = ()
    status: tuple[FactStatus, ...] = ()
    status_reason: tuple[str, ...] = ()
    ttl: tuple[str, ...] = ()
    chunk: tuple[NodeId | None, ...] = ()
    """Usually the block's id."""
    document: tuple[DocumentId | None, ...] = ()
    span: tuple[Span | None, ...] = ()
    embedding_model: tuple[str, ...] = ()
    archived_at: tuple[datetime | None, ...] = ()
    version: tuple[int, ...] = ()
    titles: tuple[tuple[str, ...], ...] = ()
    passage: tuple[int | None, ...] = ()
    leads: tuple[tuple[Span, ...], ...] = ()
    lead_characters: tuple[int, ...] = ()


_BLOCK: Final = RecordKind(_PackedBlock)
_NO_METADATA: Final[Mapping[str, str]] = {}


def encode_block(block: FactBlock) -> bytes:
    """Leaves out the block's id, which is in the key, and the hashes of contents."""
    facts = block.facts
    return _BLOCK.encode(
        _PackedBlock(
            source=block.source,
            places=tuple(fact.id.int & _PLACE_MASK for fact in facts),
            content=_column([fact.content for fact in facts]),
            tokens=_column([fact.tokens for fact in facts]),
            source_location=_column([fact.source_location for fact in facts]),
            importance=_column([_short(fact.importance) for fact in facts]),
            ingested_at=_column([fact.ingested_at for fact in facts]),
            modified_at=_column([fact.modified_at for fact in facts]),
            created_by=_column([fact.created_by for fact in facts]),
            metadata=_column([fact.metadata for fact in facts], _NO_METADATA),
            status=_column([fact.status for fact in facts], FactStatus.ACTIVE),
            status_reason=_column([fact.status_reason for fact in facts], ""),
            ttl=_column([fact.ttl for fact in facts], ""),
            chunk=_column([fact.chunk for fact in facts], NodeId(block.id)),
            document=_column([fact.document for fact in facts], None),
            span=_column([fact.span for fact in facts], None),
            embedding_model=_column([fact.embedding_model for fact in facts], ""),
            archived_at=_column([fact.archived_at for fact in facts], None),
            version=_column([fact.version for fact in facts], 1),
            titles=_column([fact.titles for fact in facts], ()),
            passage=_column([fact.passage for fact in facts], None),
            leads=_column([fact.leads for fact in facts], ()),
            lead_characters=_column([fact.lead_characters for fact in facts], 0),
        )
    )


def decode_block(block: BlockId, stored: bytes) -> FactBlock:
    packed = _BLOCK.decode(stored)
    count, first = len(packed.places), block.int & ~_PLACE_MASK
    with _reporting_damage():
        contents = _all(packed.content, count)
        columns = zip(
            (FactId(UUID(int=first | place)) for place in packed.places),
            contents,
            map(fact_hash, contents),
            _all(packed.tokens, count),
            [packed.source] * count,
            _all(packed.source_location, count),
            map(_long, _all(packed.importance, count)),
            _all(packed.ingested_at, count),
            _all(packed.modified_at, count),
            _all(packed.created_by, count),
            _all(packed.metadata or (_NO_METADATA,), count),
            _all(packed.status or (FactStatus.ACTIVE,), count),
            _all(packed.status_reason or ("",), count),
            _all(packed.ttl or ("",), count),
            _all(packed.chunk or (NodeId(block),), count),
            _all(packed.document or (None,), count),
            _all(packed.span or (None,), count),
            _all(packed.embedding_model or ("",), count),
            _all(packed.archived_at or (None,), count),
            _all(packed.version or (1,), count),
            _all(packed.titles or ((),), count),
            _all(packed.passage or (None,), count),
            _all(packed.leads or ((),), count),
            _all(packed.lead_characters or (0,), count),
            strict=True,
        )
        return FactBlock(block, tuple(Fact(*fields) for fields in columns))


def encode_vectors(vectors: Mapping[FactId, bytes]) -> bytes:
    """The record of the vectors of a block's facts. Leaves out the block's id, which is in the key."""
    ordered = sorted(vectors.items())
    places = b"".join(fact.bytes[-_PLACE_BYTES:] for fact, _ in ordered)
    return len(ordered).to_bytes(_PLACE_BYTES, "big") + places + b"".join(vector for _, vector in ordered)


def decode_vectors(block: BlockId, stored: bytes) -> dict[FactId, bytes]:
    """The vectors of a block's facts, in the order of ids."""
    count = int.from_bytes(stored[:_PLACE_BYTES], "big")
    begin, own = (count + 1) * _PLACE_BYTES, block.bytes[:-_PLACE_BYTES]
    size, left = divmod(len(stored) - begin, count) if count else (0, 1)
    if left or size <= 0:
        raise StoreCorruptError(f"the vectors of block {block} cannot be read: they have different lengths")
    return {
        FactId(UUID(bytes=own + stored[place * _PLACE_BYTES :][:_PLACE_BYTES])): stored[begin + (place - 1) * size :][
            :size
        ]
        for place in range(1, count + 1)
    }


def _column(values: Sequence[T], *usual: T) -> tuple[T, ...]:
    """The values, or one of them if all are equal, or none if that is the usual one."""
    if any(value != values[0] for value in values):
        return tuple(values)
    return () if values[0] in usual else (values[0],)


def _all(column: Sequence[T], count: int) -> Sequence[T]:
    if len(column) not in {1, count}:
        raise ValueError(f"{len(column)} values for {count} facts")
    return column if len(column) == count else [column[0]] * count


@contextlib.contextmanager
def _reporting_damage() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise StoreCorruptError(f"a stored block of facts cannot be read: {error}") from error


def _short(weight: float) -> int | float:
    """Most weights have few digits. As a whole number, a weight takes three bytes instead of nine."""
    whole = round(weight * _FOUR_DIGITS)
    return whole if whole / _FOUR_DIGITS == weight else weight


def _long(stored: int | float) -> float:
    return stored / _FOUR_DIGITS if isinstance(stored, int) else stored

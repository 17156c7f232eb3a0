"""The oldest revision of a corpus that can be read (the floor), and the removal of entries that no reader can see.

For each versioned key, a reader at or above the floor sees the newest entry at or below the floor, or a later one. So
all entries before that newest one can go, and it too if it is a tombstone. Older entries go first, or all in one
transaction, so that nothing reappears for a moment. Entries at or below the floor never change, so they are read
without conflicts, and a walk may stop anywhere and go on later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import by_source, revisions
from drillcore_server.kernel.corpus_model import Corpus, TrimState
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.writes import LOCATOR_BYTES, fact_locator, locator_of, turn_locator
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import BlockId, Level, Revision, node_id
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.versioned import Stored

STATE = RecordKind(TrimState)
PAGE_ENTRIES: Final = 2_000
PAGE_BYTES: Final = 2_000_000
"""The most entries, and bytes, that one transaction looks at.

That takes a twentieth of the allowed five seconds and clears far less than 10 MB.
"""


def state(tr: Reader, keys: CorpusKeys) -> TrimState:
    return STATE.read(tr, keys.floor()) or TrimState()


def floor(tr: Reader, keys: CorpusKeys) -> Revision:
    """The oldest revision that can be read; 0 if none was trimmed."""
    return state(tr, keys).floor


def check_kept(tr: Reader, keys: CorpusKeys, revision: Revision) -> None:
    """Raises `Missing` if the revision was trimmed. Revision 0, which is empty, always exists."""
    oldest = floor(tr, keys)
    if 0 < revision < oldest:
        message = f"revision {revision} is trimmed: the oldest that can still be read is {oldest}"
        raise Missing(Reason.REVISION_TRIMMED, message, oldest_revision=str(oldest))


def raise_floor(tr: Transaction, keys: CorpusKeys, to: Revision) -> TrimState:
    """Makes earlier revisions unreadable from this commit on. The floor never goes down."""
    now = state(tr, keys)
    if to <= now.floor:
        return now
    raised = replace(now, floor=to)
    STATE.write(tr, keys.floor(), raised)
    return raised


def walk_again(tr: Transaction, keys: CorpusKeys) -> None:
    """Makes the next trim start from the beginning.

    An earlier trim may have kept entries for the sake of staged records that have been removed since.
    """
    now = state(tr, keys)
    if now.floor:
        STATE.write(tr, keys.floor(), TrimState(now.floor))


def trim_page(tr: Transaction, keyspace: Keyspace, corpus: Corpus) -> tuple[int, TrimState]:
    """Removes the next page of entries that nobody can read. Returns their number and the new state.

    The index by source comes last: then everything that it may still list is gone.
    The state is read with a conflict, so concurrent trims each do another page.
    """
    keys = keyspace.of_corpus(corpus.number)
    now = state(tr, keys)
    if now.finished:
        return 0, now
    walk = now if now.walking else replace(now, walking=now.floor, cursor=b"")
    index, removed = keys.all_by_source(), 0
    following: bytes | None
    if index.begin <= walk.cursor < index.end:
        following = by_source.trim_page(tr, keys, walk.walking, walk.cursor)
    else:
        page = find_unseen(tr.snapshot, keys, walk.walking, walk.cursor)
        for entry in page.entries:
            for key in entry.places:
                tr.clear(key)
        _forget_nodes(tr, keyspace, corpus, page.gone)
        following, removed = page.following or index.begin, len(page.entries)
    if following is None:
        after = replace(walk, trimmed=walk.walking, walking=Revision(0), cursor=b"")
    else:
        after = replace(walk, cursor=following)
    STATE.write(tr, keys.floor(), after)
    return removed, after


@dataclass(slots=True)
class UnseenPage:
    head: Revision
    """The head of the corpus. Entries beyond it are not published."""
    entries: list[Stored] = field(default_factory=list)
    """Entries that no reader at or above the floor sees."""
    gone: list[bytes] = field(default_factory=list)
    """Keys that have no other entries than these."""
    following: bytes | None = None
    """Where the next page begins; None after the last one."""


def find_unseen(tr: Reader, keys: CorpusKeys, floor: Revision, begin: bytes) -> UnseenPage:
    """A page of the corpus's entries, from `begin` on. Every page makes progress, however large an entry is."""
    page = UnseenPage(revisions.head(tr, keys))
    previous: Stored | None = None
    count = size_bytes = 0
    for entry in _entries(tr, keys, begin):
        if previous is not None:
            _sort_out(floor, page, previous, entry)
            if count >= PAGE_ENTRIES or size_bytes >= PAGE_BYTES:
                page.following = entry.places[0]
                return page
        previous, count, size_bytes = entry, count + 1, size_bytes + entry.size_bytes
    if previous is not None:
        _sort_out(floor, page, previous, None)
    return page


def _entries(tr: Reader, keys: CorpusKeys, begin: bytes) -> Iterator[Stored]:
    for space in keys.by_revision():
        if begin < space.end:
            yield from versioned.entries(tr, max(begin, space.begin), space.end)


def _sort_out(floor: Revision, page: UnseenPage, entry: Stored, following: Stored | None) -> None:
    """Adds the entry to the page if no reader sees it. `following` is the next entry of the store."""
    if entry.revision > floor:
        return
    same_key = following is not None and following.key == entry.key
    overtaken = same_key and following is not None and following.revision <= floor
    staged = same_key and following is not None and following.revision > page.head
    if staged and entry.is_removal:
        return  # the writer that staged the next record relies on the node's locator, but may never publish the record
    if overtaken or entry.is_removal:
        page.entries.append(entry)
        if not same_key:
            page.gone.append(entry.key)


def _leave_to_facts(tr: Transaction, corpus: Corpus, keys: CorpusKeys, locator: bytes) -> None:
    """Clears a locator, unless facts stay in a block of the same id: facts outlive the chunk they were drawn from."""
    facts = keys.fact_block(BlockId(node_id(locator[-16:])))
    if any(True for _ in tr.range(facts, versioned.behind(facts), limit=1)):
        tr.set(locator, fact_locator(corpus.number))
    else:
        tr.clear(locator)


def _forget_nodes(tr: Transaction, keyspace: Keyspace, corpus: Corpus, gone: Iterable[bytes]) -> None:
    """Clears the locators of nodes that are gone for good.

    A writer may use the id again, and then writes the node's record before its locator. This function therefore reads
    the record's key: a new record conflicts, and the next run finds it.
    """
    keys = keyspace.of_corpus(corpus.number)
    # Raws with ids of their own have a parent but no record.
    spaces = (
        (locator_of(Level.SECTION, corpus.number), keys.sections()),
        (locator_of(Level.CHUNK, corpus.number), keys.chunks()),
        (locator_of(Level.RAW, corpus.number), keys.parents()),
        (fact_locator(corpus.number), keys.fact_blocks()),
        (turn_locator(corpus.number), keys.turns()),
    )
    for key in gone:
        for own, space in spaces:
            if space.begin <= key < space.end:
                place = keyspace.locator(corpus.tenant_id, node_id(key[-16:]))
                tr.add_read_conflict_range(key, key + b"\xff")
                if (tr.get(place) or b"")[:LOCATOR_BYTES] == own:
                    _leave_to_facts(tr, corpus, keys, place)

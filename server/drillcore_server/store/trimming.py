"""The oldest revision of a corpus that can be read, and the removal of what no reader from there on sees.

Of each key kept by revision a reader at or above the floor sees the newest entry at or below the floor, or a later one.
So the entries before that newest one can go, and it too if it says that the key is gone: the older ones first, or all
in one transaction, so that nothing comes back for a moment. Entries at or below the floor are never written any more:
they are read without conflicts, and a walk may stop anywhere and go on later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import Missing
from drillcore_server.domain.ids import Revision
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.retention import TrimState
from drillcore_server.store import revisions, versioned
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.hierarchy import node_id
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind
from drillcore_server.store.versioned import Stored
from drillcore_server.store.writes import LOCATOR_BYTES, fact_locator, locator_of, turn_locator

STATE = RecordKind(TrimState)
PAGE_ENTRIES: Final = 2_000
PAGE_BYTES: Final = 2_000_000
"""What one transaction looks at: a twentieth of the five seconds it has, and what it clears is far from 10 MB."""


def state(tr: Reader, keys: CorpusKeys) -> TrimState:
    return STATE.read(tr, keys.floor()) or TrimState()


def floor(tr: Reader, keys: CorpusKeys) -> Revision:
    """The oldest revision that can be read; 0 if none was trimmed."""
    return state(tr, keys).floor


def check_kept(tr: Reader, keys: CorpusKeys, revision: Revision) -> None:
    """Raises `Missing` if the revision was trimmed. Revision 0 is always there: it is empty."""
    oldest = floor(tr, keys)
    if 0 < revision < oldest:
        message = f"revision {revision} is trimmed: the oldest that can still be read is {oldest}"
        raise Missing(Reason.REVISION_TRIMMED, message, oldest_revision=str(oldest))


def raise_floor(tr: Transaction, keys: CorpusKeys, to: Revision) -> TrimState:
    """From this commit on earlier revisions cannot be read. A floor that is higher already stays."""
    now = state(tr, keys)
    if to <= now.floor:
        return now
    raised = replace(now, floor=to)
    STATE.write(tr, keys.floor(), raised)
    return raised


def walk_again(tr: Transaction, keys: CorpusKeys) -> None:
    """Has the next trim begin anew: what was staged is swept away, and a trim may have left keys for its sake."""
    now = state(tr, keys)
    if now.floor:
        STATE.write(tr, keys.floor(), TrimState(now.floor))


def trim_page(tr: Transaction, keyspace: Keyspace, corpus: Corpus) -> tuple[int, TrimState]:
    """Removes the next page of what nobody can read; how many entries, and how far it is now.

    The state is read with a conflict: of several who trim at once each does another page.
    """
    keys = keyspace.of_corpus(corpus.number)
    now = state(tr, keys)
    if now.finished:
        return 0, now
    walk = now if now.walking else replace(now, walking=now.floor, cursor=b"")
    page = find_unseen(tr.snapshot, keys, walk.walking, walk.cursor)
    for entry in page.entries:
        for key in entry.places:
            tr.clear(key)
    _forget_nodes(tr, keyspace, corpus, page.gone)
    if page.following is None:
        after = replace(walk, trimmed=walk.walking, walking=Revision(0), cursor=b"")
    else:
        after = replace(walk, cursor=page.following)
    STATE.write(tr, keys.floor(), after)
    return len(page.entries), after


@dataclass(slots=True)
class UnseenPage:
    head: Revision
    """Of the corpus: what is beyond it is not published."""
    entries: list[Stored] = field(default_factory=list)
    """That no reader at or above the floor sees."""
    gone: list[bytes] = field(default_factory=list)
    """Keys of which nothing is left without these entries."""
    following: bytes | None = None
    """Where the next page begins; None if this is the last one."""


def find_unseen(tr: Reader, keys: CorpusKeys, floor: Revision, begin: bytes) -> UnseenPage:
    """A page of the corpus's entries, from `begin` on. It always gets further, however large an entry is."""
    page = UnseenPage(revisions.head(tr, keys))
    previous: Stored | None = None
    count = size_bytes = 0
    for one in _entries(tr, keys, begin):
        if previous is not None:
            _sort_out(tr, keys, floor, page, previous, one)
            if count >= PAGE_ENTRIES or size_bytes >= PAGE_BYTES:
                page.following = one.places[0]
                return page
        previous, count, size_bytes = one, count + 1, size_bytes + one.size_bytes
    if previous is not None:
        _sort_out(tr, keys, floor, page, previous, None)
    return page


def _entries(tr: Reader, keys: CorpusKeys, begin: bytes) -> Iterator[Stored]:
    for space in keys.by_revision():
        if begin < space.end:
            yield from versioned.entries(tr, max(begin, space.begin), space.end)


def _sort_out(
    tr: Reader, keys: CorpusKeys, floor: Revision, page: UnseenPage, one: Stored, following: Stored | None
) -> None:
    if one.revision > floor:
        return
    same_key = following is not None and following.key == one.key
    overtaken = same_key and following is not None and following.revision <= floor
    staged = same_key and following is not None and following.revision > page.head
    if staged and one.is_removal:
        return  # whoever is staging that record counts on the node's locator, and may never publish it
    if overtaken or one.is_removal or _cites_nothing(tr, keys, floor, one):
        page.entries.append(one)
        if not same_key:
            page.gone.append(one.key)


def _cites_nothing(tr: Reader, keys: CorpusKeys, floor: Revision, one: Stored) -> bool:
    """An entry of this index stands for the record that its node has of the same revision, and goes with it."""
    index = keys.all_citing()
    if not index.begin <= one.key < index.end:
        return False
    records = (keys.section(node_id(one.key[-16:])), keys.master())
    return all(versioned.newest(tr, record, floor) != one.revision for record in records)


def _forget_nodes(tr: Transaction, keyspace: Keyspace, corpus: Corpus, gone: Iterable[bytes]) -> None:
    """Clears the locators of nodes that are gone for good, so that nothing leads nowhere.

    An id may be given again, and whoever does that writes the node's record before its locator. The record's key is
    therefore read here: a new record is a conflict, and is found when this is run again.
    """
    keys = keyspace.of_corpus(corpus.number)
    # Raws with ids of their own have no record of their own, but a parent.
    spaces = (
        (locator_of(Level.SECTION, corpus.number), keys.sections()),
        (locator_of(Level.CHUNK, corpus.number), keys.chunks()),
        (locator_of(Level.RAW, corpus.number), keys.parents()),
        (fact_locator(corpus.number), keys.facts()),
        (turn_locator(corpus.number), keys.turns()),
    )
    for key in gone:
        for own, space in spaces:
            if space.begin <= key < space.end:
                place = keyspace.locator(corpus.tenant_id, node_id(key[-16:]))
                tr.add_read_conflict_range(key, key + b"\xff")
                if (tr.get(place) or b"")[:LOCATOR_BYTES] == own:
                    tr.clear(place)

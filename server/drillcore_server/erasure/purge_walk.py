"""Finds what destroyed keys have sealed, page by page, from the index by source.

Only the lists of the destroyed keys are read, and the entries that they name. A record under several keys is listed
where a key joined it; from there on its later versions are read for as long as the key is among theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from drillcore_fdb.engine import Reader
from drillcore_server.graphs.quad_store import RECORDS, index_keys, place_at
from drillcore_server.kernel import by_source
from drillcore_server.kernel.by_source import Listing
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.followers import SEALED, edge_by_child
from drillcore_server.storage.ids import Revision, node_id
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.sealed import is_empty, is_of_several, keys_of
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.versioned import REVISION_BYTES, Value, VersionPlace

_NUMBERS_MAX: Final = 8
"""How many encryption keys one transaction reads lists of."""
_LISTS_MAX: Final = 16
"""How many stored values of the lists of each."""
_LAST: Final = Revision((1 << 8 * REVISION_BYTES) - 2)
"""Greater than every revision."""
_VERSIONS_MAX: Final = 16
"""How many stored values are read at once of the later versions of a record under several keys."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk continues: at a key of a list, and for a record under several keys, at one of its versions."""

    number: int
    revision: Revision
    batch: int
    key: bytes
    version: Revision


class Item(NamedTuple):
    """A key of a list, and the first version of it to look at."""

    number: KeyNumber
    revision: Revision
    batch: int
    key: bytes
    version: Revision

    @property
    def place(self) -> Place:
        return Place(*self)


@dataclass(frozen=True, slots=True)
class Page:
    records: list[Value]
    """Versions of sealed records to empty, each with the value that is stored."""
    entries: list[VersionPlace]
    """Index entries to remove. Some may be gone."""
    sections: list[bytes]
    """The keys of sections of which all versions were looked at. Their index entries may lead nowhere."""
    following: Place | None
    """Where the next page begins."""


def read_page(tr: Reader, keys: CorpusKeys, numbers: Sequence[int], begin: Place | None, items_max: int) -> Page:
    """The next page of a walk over all that these encryption keys have sealed, and over what follows from it."""
    items, following = _items(tr, keys, sorted(numbers), begin, items_max)
    sealed = [item for item in items if keys.space_of(item.key) in SEALED]
    versions, unfinished = _versions(tr, sealed, items_max)
    if unfinished is not None:
        items, following = items[: items.index(unfinished.of) + 1], unfinished.following
    destroyed = frozenset(map(KeyNumber, numbers))
    page = Page([], [], [], following)
    for item in items:
        space = keys.space_of(item.key)
        if space not in SEALED:
            page.entries.append(VersionPlace(item.key, item.revision))
        if space is Space.EDGES:
            page.entries.append(VersionPlace(edge_by_child(keys, item.key), item.revision))
        if space is Space.SECTIONS and (unfinished is None or item != unfinished.of):
            page.sections.append(item.key)
        doomed = [version for version in versions.get(item, ()) if _is_doomed(version, item.number, destroyed)]
        page.records.extend(doomed)
        if space is Space.QUADS:
            page.entries.extend(_of_quads(keys, doomed))
    return page


def _of_quads(keys: CorpusKeys, quads: Iterable[Value]) -> Iterator[VersionPlace]:
    """The index entries of quads, which are written with each of their versions."""
    for quad in quads:
        yield from (VersionPlace(key, quad.revision) for key in index_keys(keys, place_at(RECORDS, quad.key)))


def _is_doomed(version: Value, number: KeyNumber, destroyed: frozenset[KeyNumber]) -> bool:
    """Whether a version is to be emptied, and was not found under another destroyed key already."""
    assert version.value is not None
    return not is_empty(version.value) and number == min(destroyed.intersection(keys_of(version.value)))


def _items(
    tr: Reader, keys: CorpusKeys, numbers: Sequence[int], begin: Place | None, items_max: int
) -> tuple[list[Item], Place | None]:
    """The next items, and where to go on."""
    first = numbers if begin is None else [number for number in numbers if number >= begin.number]
    listings, following = _listings(tr, keys, first, begin)
    items: list[Item] = []
    for listing in listings:
        number, revision, batch = listing[:3]
        for key in listing.keys:
            version = revision
            if begin is not None and listing[:3] == (begin.number, begin.revision, begin.batch):
                if key < begin.key:
                    continue
                version = max(begin.version, revision) if key == begin.key else revision
            item = Item(number, revision, batch, key, version)
            if len(items) == items_max:
                return items, item.place
            items.append(item)
    return items, following


def _listings(
    tr: Reader, keys: CorpusKeys, numbers: Sequence[int], begin: Place | None
) -> tuple[list[Listing], Place | None]:
    """The next lists of these encryption keys, and where to go on if there are more."""
    ranges = [keys.all_by_source(number) for number in numbers[:_NUMBERS_MAX]]
    if begin is not None and ranges and numbers[0] == begin.number:
        ranges[0] = ranges[0]._replace(begin=keys.by_source(begin.number, begin.revision, begin.batch))
    listings: list[Listing] = []
    for found, following in by_source.pages(tr, keys, ranges, _LISTS_MAX):
        listings += found
        if following is not None:
            return listings, Place(*keys.parse_by_source(following), b"", Revision(0))
    left = numbers[_NUMBERS_MAX:]
    return listings, Place(left[0], Revision(0), 0, b"", Revision(0)) if left else None


class _Unfinished(NamedTuple):
    of: Item
    following: Place


def _versions(
    tr: Reader, items: Sequence[Item], versions_max: int
) -> tuple[dict[Item, list[Value]], _Unfinished | None]:
    """The versions of each record that its item leads to: one, or as many as have its encryption key among several.

    Looks at about so many versions. If there are more, also returns the first item with some left.
    """
    found: dict[Item, list[Value]] = {item: [] for item in items}
    pending = {item: item.version for item in items}
    limit, looked_at = 1, 0
    while pending and looked_at < len(items) + versions_max:
        ranges = [(VersionPlace(item.key, at).begin, versioned.behind(item.key)) for item, at in pending.items()]
        for item, entries in zip(list(pending), tr.range_many(ranges, limit=limit), strict=True):
            heads = versioned.heads(tr, entries)
            looked_at += len(heads)
            chain = list(_chain(item, heads))
            found[item] += chain
            if len(entries) < limit or len(chain) < len(heads) or not is_of_several(heads[-1].value or b""):
                del pending[item]
            else:
                pending[item] = Revision(heads[-1].revision + 1)
        limit = _VERSIONS_MAX
    left = next((item for item in items if item in pending), None)
    if left is None:
        return found, None
    return found, _Unfinished(left, left._replace(version=pending[left]).place)


def _chain(item: Item, heads: Sequence[Value]) -> Iterator[Value]:
    """The first of these versions that have the item's key."""
    for version in heads:
        if version.value is None or item.number not in keys_of(version.value):
            return
        if version.revision != item.revision and not is_of_several(version.value):
            return  # listed in its own revision
        yield version


def entries_of_sections(
    tr: Reader, keys: CorpusKeys, sections: Sequence[bytes], destroyed: frozenset[int]
) -> list[VersionPlace]:
    """The index entries of sections that lead to no version that is left.

    An entry may outlive the version it was written with: it stays for as long as the section's category stays.
    """
    listed = [keys.listed_section(node_id(section[-16:])) for section in sections]
    entries: list[tuple[bytes, Value, Revision]] = []
    for section, history in zip(sections, versioned.histories(tr, listed), strict=True):
        entries += [(section, entry, last) for entry, last in _lifetimes(history)]
    visible = versioned.get_each(tr, [(section, last) for section, _, last in entries])
    gone = [
        (section, entry)
        for (section, entry, last), newest in zip(entries, visible, strict=True)
        if not (newest is not None and _is_left(newest.value, destroyed))
        and not versioned.any_version(tr, section, entry.revision, last, lambda stored: _is_left(stored, destroyed))
    ]
    categories = [keys.category(entry.value or b"", node_id(section[-16:])) for section, entry in gone]
    return [
        VersionPlace(key, entry.revision)
        for (_, entry), category in zip(gone, categories, strict=True)
        for key in (entry.key, category)
    ]


def _lifetimes(history: Sequence[Value]) -> Iterator[tuple[Value, Revision]]:
    """The records of a key's history, each with the last revision at which readers see it."""
    for entry, following in zip(history, [*history[1:], None], strict=True):
        if entry.value is not None:
            yield entry, _LAST if following is None else Revision(following.revision - 1)


def _is_left(stored: bytes, destroyed: frozenset[int]) -> bool:
    return not is_empty(stored) and destroyed.isdisjoint(keys_of(stored))

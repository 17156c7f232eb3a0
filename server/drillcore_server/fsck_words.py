"""Proves that the words kept of facts are those of what they say and of the titles above them."""

from __future__ import annotations

from collections.abc import Iterator

from drillcore_fdb.errors import EngineError
from drillcore_server.domain.fact_words import words_of
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.words import Lexicon
from drillcore_server.store.fact_words import encode_words
from drillcore_server.store.facts import fact_id
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.versioned import Entry


class FactWordsCheck:
    """Asked of all facts in the order of their ids, it reads words beside them: none are held."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._entries = snapshot.entries(snapshot.keys.all_fact_words())
        self._next: Entry | None = None
        self._is_begun = False
        self._lexicon = Lexicon()

    def of(self, fact: Fact) -> Iterator[str]:
        """What is wrong with the words of a fact, and with those between the fact before it and this one."""
        while (entry := self._peek()) is not None and entry.key[-16:] < fact.id.bytes:
            yield self._stray(entry)
        if entry is None or entry.key[-16:] != fact.id.bytes:
            if fact.is_searched:
                yield f"fact {fact.id} is searched, but has no words"
        elif not fact.is_searched:
            yield self._stray(entry)
        else:
            yield from self._compared(fact, entry)

    def left(self) -> Iterator[str]:
        """What is wrong behind the last fact."""
        while (entry := self._peek()) is not None:
            yield self._stray(entry)

    def _compared(self, fact: Fact, entry: Entry) -> Iterator[str]:
        self._next = next(self._entries, None)
        try:
            stored = self._snapshot.sealed.opened(entry).value
        except EngineError as error:
            yield error.message
            return
        if stored != encode_words(words_of(fact, self._lexicon)):
            yield f"the words of fact {fact.id} are not those of its content and titles"

    def _stray(self, entry: Entry) -> str:
        self._next = next(self._entries, None)
        return f"there are words, but no fact {fact_id(entry.key)}, or one that is not searched"

    def _peek(self) -> Entry | None:
        if not self._is_begun:
            self._is_begun, self._next = True, next(self._entries, None)
        return self._next

"""The quads that follow from a corpus's records, read from the store of a running server, and patterns for them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from drillcore_server.graphs import derived_quads
from drillcore_server.graphs.derived_quads import DerivedPage
from drillcore_server.graphs.quad_model import Quad, QuadPattern
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.sealed import SealedRecords
from tests.support.servers.running import Running
from tests.support.stores.aged import corpus_in, keys_of

PageOf = Callable[[QuadPattern, bytes, int], DerivedPage]
Walk = Callable[[QuadPattern, int], list[Quad]]
"""All quads that match, read in pages of at most this many."""


def snapshot(server: Running, corpus: str, revision: int | None = None) -> BatchedReads:
    """A revision of a corpus of acme, by default the head."""
    keys = keys_of(server, corpus)
    head = server.engine.run(lambda tr: revisions.head(tr, keys))
    at = head if revision is None else Revision(revision)
    return BatchedReads(server.engine, corpus_in(server.engine, corpus), keys, SealedRecords(server.server.keyring), at)


def source_quads(server: Running, corpus: str, revision: int | None = None) -> list[Quad]:
    return list(derived_quads.every_source_quad(snapshot(server, corpus, revision)))


def source_pages(server: Running, corpus: str, revision: int | None = None) -> PageOf:
    found = snapshot(server, corpus, revision)

    def page(pattern: QuadPattern, begin: bytes, quads_max: int) -> DerivedPage:
        return found.read(lambda view: derived_quads.source_page(view, pattern, begin, quads_max))

    return page


def walked(page_of: PageOf, pattern: QuadPattern, quads_max: int = 1_000) -> list[Quad]:
    """The quads of all pages. Fails if a page has more quads than allowed."""
    found: list[Quad] = []
    begin = b""
    while True:
        page = page_of(pattern, begin, quads_max)
        assert len(page.quads) <= quads_max
        found += page.quads
        if page.following is None:
            return found
        begin = page.following


def assert_every_pattern_agrees(plain: Sequence[Quad], walk: Walk, seed: int = 7) -> None:
    """For patterns made of existing terms, the walk must find exactly the quads that a check of each quad finds."""
    chance = random.Random(seed)
    for pattern in patterns(plain, chance):
        expected = Counter(quad for quad in plain if pattern.matches(quad))
        assert Counter(walk(pattern, chance.randint(1, 60))) == expected, pattern


def patterns(plain: Sequence[Quad], chance: random.Random) -> Iterator[QuadPattern]:
    """For quads of every predicate and form of subject: all 16 ways to bind terms, and terms of two different quads."""
    for quad, second in zip(_various(plain, chance), _various(plain, chance), strict=True):
        for bound in product((False, True), repeat=4):
            terms = [term if is_bound else None for term, is_bound in zip(quad, bound, strict=True)]
            yield QuadPattern(*terms)  # type: ignore[arg-type]
        yield QuadPattern(subject=quad.subject, object=second.object)
        yield QuadPattern(predicate=quad.predicate, object=second.object)


def _various(plain: Sequence[Quad], chance: random.Random) -> list[Quad]:
    """A quad for each predicate and kind of subject."""
    mixed = chance.sample(plain, len(plain))
    kinds = {(str(quad.predicate), str(quad.subject).split(":")[2]): quad for quad in mixed}
    return [kinds[name] for name in sorted(kinds)]

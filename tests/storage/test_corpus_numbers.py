"""The numbers of corpora are as short as possible and never given twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.corpus_store import new_numbers, take_number
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.storage.ids import CorpusId, CorpusNumber
from tests.support.stores.keyspaces import keyspace_below
from tests.support.stores.stores import opened

KEYS = keyspace_below(b"store")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path) as engine:
        yield engine


def take(engine: EmbeddedEngine, numbers: list[CorpusNumber]) -> CorpusNumber:
    return engine.run(lambda tr: take_number(tr, KEYS, numbers, CorpusId(uuid4())))


def test_the_first_corpora_have_the_shortest_keys(engine: EmbeddedEngine) -> None:
    assert take(engine, new_numbers()) < 1 << 8


def test_corpora_have_distinct_numbers_even_when_short_numbers_run_out(engine: EmbeddedEngine) -> None:
    taken = [take(engine, new_numbers()) for _ in range(300)]
    assert len(set(taken)) == 300


def test_a_number_that_was_given_is_never_given_again(engine: EmbeddedEngine) -> None:
    numbers = [CorpusNumber(7), CorpusNumber(9)]
    assert [take(engine, numbers), take(engine, numbers)] == [7, 9]
    with pytest.raises(Unavailable) as caught:
        take(engine, numbers)
    assert caught.value.reason is Reason.CONFLICT

"""Every test here runs on every engine, with keys of its own: a cluster is shared and may hold other keys."""

from collections.abc import Iterator

import pytest

from drillcore_fdb.engine import Engine
from tests.conformance.legs import OPENERS
from tests.conformance.staging import Space


@pytest.fixture(scope="session", params=list(OPENERS))
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    opened = OPENERS[request.param](tmp_path_factory.mktemp("engine"))
    yield opened
    opened.close()


@pytest.fixture
def space(engine: Engine) -> Iterator[Space]:
    fresh = Space.fresh()
    yield fresh
    engine.run(lambda tr: tr.clear_range(*fresh.whole))

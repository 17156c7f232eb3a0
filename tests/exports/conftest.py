"""Corpora for tests of exports. They are made once, since tests only read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.data.exported_corpora import Desk, fill, opened_desk


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A corpus of texts that are hard to export, with signatures."""
    with opened_desk(tmp_path_factory.mktemp("exported")) as opened:
        fill(opened.archive)
        opened.sign("master", "section", "chunk")
        yield opened


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Desk]:
    with opened_desk(tmp_path) as opened:
        yield opened


@pytest.fixture
def files() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened

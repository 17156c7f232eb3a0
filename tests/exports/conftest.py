"""Corpora that are made once: they are only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.data.exported_corpora import Desk, fill, opened_desk


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Of hard texts, with signatures."""
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

"""Corpora that are made once: they are only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.archive import Archive, opened_archive
from tests.unit.exporting.corpora import filled


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    with opened_archive(tmp_path_factory.mktemp("exported")) as opened:
        yield filled(opened)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as opened:
        yield opened


@pytest.fixture
def files() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened

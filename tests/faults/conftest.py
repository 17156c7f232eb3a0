"""The real engine, in a directory of the test's own; what is lost in a crash of the machine is not tested here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    opened = EmbeddedEngine.open(EmbeddedSettings(path=tmp_path / "store", durability=Durability.RELAXED))
    yield opened
    opened.close()

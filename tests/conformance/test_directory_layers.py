"""Our directory layer and FoundationDB's read and extend each other's directories, so a store can change engines."""

from uuid import uuid4

import pytest

from drillcore_fdb import directory
from drillcore_fdb.engine import Engine
from tests.conformance.staging import Space


def test_both_layers_agree_on_every_prefix(engine: Engine, space: Space) -> None:
    top = f"layers-{uuid4().hex}"
    ours = [engine.run(lambda tr, n=number: directory.create_or_open(tr, (top, f"ours-{n}"))) for number in range(40)]
    theirs = [engine.directory(top, f"theirs-{number}") for number in range(40)]
    assert len({directory.prefix for directory in [*ours, *theirs]}) == 80
    assert [engine.directory(top, f"ours-{number}") for number in range(40)] == ours
    found = [
        engine.run(lambda tr, n=number: directory.create_or_open(tr, (top, f"theirs-{n}"))) for number in range(40)
    ]
    assert found == theirs
    assert engine.run(lambda tr: directory.list_names(tr, (top,))) == engine.list_directories(top)
    assert engine.remove_directory(top)
    with pytest.raises(KeyError):
        engine.run(lambda tr: directory.list_names(tr, (top,)))

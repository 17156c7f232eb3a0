"""Cores of TrustGraph's own tools are imported as they are, as one revision of a corpus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rpc.cores import CoreCaller, handbook
from tests.rpc.running import ACME_ID, OPERATOR, Running


@pytest.fixture(scope="session")
def cores(shared: Running) -> Iterator[CoreCaller]:
    caller = CoreCaller(shared.address, OPERATOR, ACME_ID)
    yield caller
    caller.close()


def test_smoke(cores: CoreCaller, corpus: str, shared: Running) -> None:
    done = cores.send(corpus, handbook(), strict=True)
    print(done)
    assert done.done.counts.quads == 4
    for one in cores.quads_of(corpus):
        print(one)

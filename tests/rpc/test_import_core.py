"""Cores of TrustGraph's own tools are imported as they are, as one revision of a corpus."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_server.domain.foreign import VectorKind
from drillcore_server.store import entity_vectors, library
from drillcore_server.store.library import LibraryPlaces
from drillcore_server.store.quads import stored_quads
from drillcore_server.store.snapshot import Snapshot
from tests.rpc.cores import CORE_ID, CoreCaller, handbook
from tests.rpc.knowledge import Caller
from tests.rpc.running import ACME, Running


@pytest.fixture(scope="session")
def cores(shared: Running) -> Iterator[CoreCaller]:
    caller = CoreCaller(shared.address, ACME)
    yield caller
    caller.close()


def test_smoke(cores: CoreCaller, corpus: str, shared: Running) -> None:
    done = cores.send(corpus, handbook(), strict=True)
    print(done)
    assert done.done.counts.quads == 4
    for one in cores.quads_of(corpus):
        print(one)

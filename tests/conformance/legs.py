"""The engines that the conformance suite runs on, and the message when FoundationDB is not among them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from drillcore_fdb.engine import Engine
from tests.support.stores import engines

REQUIRED_VARIABLE = "DRILLCORE_REQUIRE_FDB"
NOT_RUN = f"FoundationDB leg NOT RUN: {engines.CLUSTER_FILE_VARIABLE} is not set"


def open_embedded(directory: Path) -> Engine:
    from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings

    return EmbeddedEngine.open(EmbeddedSettings(path=directory, durability=Durability.RELAXED))


def open_cluster(directory: Path) -> Engine:
    """The cluster of the environment. Without a cluster the test is skipped, or fails if a cluster is required."""
    file = engines.cluster_file()
    if file is None:
        if os.environ.get(REQUIRED_VARIABLE) == "1":
            pytest.fail(f"{NOT_RUN}, and {REQUIRED_VARIABLE}=1 asks for it", pytrace=False)
        pytest.skip(NOT_RUN)
    return engines.open_cluster(file)


OPENERS: dict[str, Callable[[Path], Engine]] = {"embedded": open_embedded, "cluster": open_cluster}

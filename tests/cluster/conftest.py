"""What runs only on a cluster that the environment names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.legs import NOT_RUN
from tests.support.stores.engines import cluster_file


def the_cluster() -> Path:
    """The file of the cluster. Without a cluster the test is skipped."""
    file = cluster_file()
    if file is None:
        pytest.skip(NOT_RUN)
    return file

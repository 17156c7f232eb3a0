"""A run without FoundationDB says so, and fails if FoundationDB is required."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conformance.legs import REQUIRED_VARIABLE
from tests.support.stores.engines import CLUSTER_FILE_VARIABLE

ONE_TEST = f"{Path(__file__).parent / 'test_visibility.py'}::test_a_cleared_key_is_gone"


def run_without_cluster(**environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if name not in (CLUSTER_FILE_VARIABLE, REQUIRED_VARIABLE)
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ONE_TEST]
    return subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=False)


def test_a_run_without_foundationdb_says_so_in_one_line() -> None:
    run = run_without_cluster()
    assert run.returncode == 0, run.stdout
    line = (
        "FoundationDB leg NOT RUN: DRILLCORE_FDB_CLUSTER_FILE is not set "
        "(1 tests of the conformance suite ran on the embedded engine only)"
    )
    assert line in run.stdout.splitlines()


def test_a_run_without_foundationdb_fails_if_it_is_required() -> None:
    run = run_without_cluster(**{REQUIRED_VARIABLE: "1"})
    assert run.returncode == 1, run.stdout
    assert "FoundationDB leg NOT RUN" in run.stdout

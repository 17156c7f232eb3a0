"""The client imports few packages."""

from __future__ import annotations

import subprocess
import sys

import pytest

CLIENT = {"drillcore", "drillcore_formats", "drillcore_proto", "google"}
COMMAND_LINE = {"click", "rich", "markdown_it", "mdurl", "pygments", "typing_extensions"}

# grpc is loaded first, because it loads its sister packages itself wherever they are installed.
PROGRAM = """
import sys
import grpc
before = set(sys.modules)
import {module}
names = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*(name for name in names if name not in sys.stdlib_module_names))
"""


def imported_by(module: str) -> set[str]:
    """The packages outside the standard library that the import loads in a new interpreter."""
    program = PROGRAM.format(module=module)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return {name for name in done.stdout.split() if not name.startswith("_")}


@pytest.mark.parametrize("module", ["drillcore", "drillcore.doctor", "drillcore.settings"])
def test_the_client_imports_nothing_beyond_grpc_and_protobuf(module: str) -> None:
    assert imported_by(module) == CLIENT


def test_the_command_line_imports_no_server_dependency() -> None:
    found = imported_by("drillcore.cli")
    assert CLIENT | {"click", "rich"} <= found <= CLIENT | COMMAND_LINE

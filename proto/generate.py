"""Makes the committed stubs from the .proto files: `python proto/generate.py [OUTPUT]`.

The generator is pinned (pyproject, `dev`): newer ones make code that forces every client to the newest protobuf.
`tests/checks/test_stubs.py` runs this and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent


def generate(output: Path) -> None:
    """Writes all stubs below `output`, at their import paths."""
    sources = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("drillcore_proto/**/*.proto"))
    include = Path(grpc_tools.__file__).parent / "_proto"
    outputs = [f"--{kind}_out={output}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    status = protoc.main(["protoc", f"-I{ROOT}", f"-I{include}", *outputs, *sources])
    if status != 0:
        raise SystemExit(status)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)

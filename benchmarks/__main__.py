"""`python -m benchmarks NAME [options]`, `python -m benchmarks --list`."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys

import benchmarks


def names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in names():
        print("benchmarks:", ", ".join(names()))
        raise SystemExit(0 if sys.argv[1:] == ["--list"] else 2)
    module = importlib.import_module(f"benchmarks.{sys.argv[1]}")
    print(json.dumps(module.run(sys.argv[2:])))


if __name__ == "__main__":
    main()

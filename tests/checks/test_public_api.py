"""The public API is frozen: it changes only together with the file that lists it."""

from __future__ import annotations

import enum
import importlib
import inspect
import os
from collections.abc import Iterator
from typing import Any

from tests.support.paths import GOLDEN_FILES

GOLDEN = GOLDEN_FILES / "public_api.txt"
REGENERATE = "DRILLCORE_REGENERATE=1 .venv/bin/pytest tests/checks/test_public_api.py"
MODULES = [
    "drillcore",
    "drillcore.settings",
    "drillcore.doctor",
    "drillcore.cli",
    "drillcore.audit",
    "drillcore.quads",
    "drillcore.cores",
    "drillcore.slices",
]


def public_api() -> Iterator[str]:
    for name in MODULES:
        module = importlib.import_module(name)
        for public in sorted(getattr(module, "__all__", None) or own_names(module)):
            yield from described(f"{name}.{public}", getattr(module, public))


def own_names(module: object) -> list[str]:
    """For a module without __all__: the public names that it defines itself."""
    members = inspect.getmembers(module, lambda member: inspect.isclass(member) or inspect.isfunction(member))
    return [name for name, member in members if not name.startswith("_") and member.__module__ == module.__name__]


def described(path: str, thing: object) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield path + (signature(thing) if inspect.isfunction(thing) and is_ours(thing) else "")
        return
    bases = [base.__name__ for base in thing.__bases__ if not base.__name__.startswith("_")]
    yield f"{path} is {', '.join(bases or ['object'])}"
    if issubclass(thing, enum.Enum):
        yield from (f"{path}.{member.name}" for member in thing)
    elif any("__init__" in vars(cls) for cls in (thing, *thing.__bases__) if is_ours(cls)):
        yield path + signature(thing)
    for name, member in sorted(inspect.getmembers(thing, inspect.isroutine)):
        if not name.startswith("_") and is_ours(member):
            yield f"{path}.{name}{signature(member)}"


def is_ours(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").startswith("drillcore")


def signature(thing: Any) -> str:
    """Arguments and result. A client's method leaves out its result, so the wrapped function is used."""
    return str(inspect.signature(getattr(thing, "__wrapped__", thing)))


def test_the_public_api_equals_the_golden_file() -> None:
    found = "".join(f"{line}\n" for line in public_api())
    if os.environ.get("DRILLCORE_REGENERATE"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text(), f"the public API changed; if that is intended: {REGENERATE}"

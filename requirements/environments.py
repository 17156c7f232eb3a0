"""The Pythons and platforms that `make run` and `make test` support: each installs from wheels alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms

PYTHONS = [(3, 11), (3, 12), (3, 13), (3, 14)]
GLIBC_MINOR = 28
"""glibc 2.28 is of 2018: Debian 10, RHEL 8. Wheels that need a newer one do not count."""
MACOS = (14, 0)


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    tags: list[Tag]
    """What it can install, the best first."""
    markers: dict[str, str]


def _linux(machine: str) -> Iterator[str]:
    for minor in range(GLIBC_MINOR, 16, -1):
        yield f"manylinux_2_{minor}_{machine}"
    yield f"manylinux2014_{machine}"
    if machine == "x86_64":
        yield from ("manylinux_2_12_x86_64", "manylinux2010_x86_64", "manylinux_2_5_x86_64", "manylinux1_x86_64")


PLATFORMS = {
    ("linux", "x86_64"): list(_linux("x86_64")),
    ("linux", "aarch64"): list(_linux("aarch64")),
    ("darwin", "arm64"): list(mac_platforms(MACOS, "arm64")),
}


def _environment(python: tuple[int, int], system: str, machine: str) -> Environment:
    version = f"{python[0]}.{python[1]}"
    platforms = PLATFORMS[system, machine]
    abi = f"cp{python[0]}{python[1]}"
    tags = [*cpython_tags(python, platforms=platforms), *compatible_tags(python, abi, platforms)]
    markers = {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "sys_platform": system,
        "platform_system": system.capitalize(),
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "os_name": "posix",
    }
    return Environment(f"Python {version} on {system} {machine}", tags, markers)


ENVIRONMENTS = [_environment(python, *platform) for python in PYTHONS for platform in PLATFORMS]

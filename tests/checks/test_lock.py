"""The lock has one version of each package, with a wheel for every Python and platform that we support."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import parse_tag

from requirements.environments import ENVIRONMENTS, PYTHONS, Environment
from tests.checks.test_repository import PROJECT
from tests.support.paths import ROOT

LOCKS = ROOT / "requirements"
WITHOUT_WHEELS = {"foundationdb", "trustgraph-base", "trustgraph-cli"}
"""Published as source only, but pure Python, so that they are built without a compiler."""


@dataclass(frozen=True)
class Locked:
    requirement: Requirement
    hashes: list[str]
    tags: list[str]


def locked(name: str) -> dict[str, Locked]:
    text = (LOCKS / f"{name}.txt").read_text(encoding="utf-8")
    blocks = re.findall(r"^([^#\s].*?)((?: \\\n +--hash=.*)+)\n((?: +# .*\n)+)", text, re.MULTILINE)
    found = [
        Locked(Requirement(pin), re.findall(r"sha256:(\w{64})", hashes), re.findall(r"# (.*)", tags))
        for pin, hashes, tags in blocks
    ]
    assert sum(line[:1] not in "# \n" for line in text.splitlines(keepends=True)) == len(found), "a line was not read"
    return {package.requirement.name: package for package in found}


def installed_by(lock: dict[str, Locked], environment: Environment) -> list[Locked]:
    markers = [(package, package.requirement.marker) for package in lock.values()]
    return [
        package for package, marker in markers if marker is None or Marker(str(marker)).evaluate(environment.markers)
    ]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda environment: environment.name)
def test_every_package_has_a_wheel_for(environment: Environment) -> None:
    for name in ("build", "run", "test"):
        for package in installed_by(locked(name), environment):
            fits = any(not parse_tag(tags).isdisjoint(environment.tags) for tags in package.tags if tags != "sdist")
            assert fits or package.requirement.name in WITHOUT_WHEELS, package.requirement


@pytest.mark.parametrize("name", ["build", "run", "test", "bench"])
def test_every_package_has_one_version_and_a_hash_for_each_file(name: str) -> None:
    for package in locked(name).values():
        assert re.fullmatch(r"==[\w.]+", str(package.requirement.specifier)), package.requirement
        assert len(package.hashes) == len(package.tags) > 0


def test_all_locks_have_the_same_versions() -> None:
    packages = [package.requirement for lock in LOCKS.glob("*.txt") for package in locked(lock.stem).values()]
    versions = {(package.name, str(package.specifier)) for package in packages}
    assert len(versions) == len({name for name, _ in versions})


def test_a_larger_set_contains_the_smaller_one() -> None:
    """So `make run` has nothing to install after `make test`."""
    assert locked("run").keys() <= locked("test").keys() <= locked("bench").keys()


@pytest.mark.parametrize(
    ("name", "extras"), [("run", ["server"]), ("test", ["server", "minilm", "dev"]), ("bench", ["bench"])]
)
def test_the_lock_fits_the_projects_requirements(name: str, extras: list[str]) -> None:
    asked = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    lock = locked(name)
    for line in asked:
        wanted = Requirement(line)
        (pin,) = lock[wanted.name.lower()].requirement.specifier
        assert wanted.specifier.contains(pin.version), f"run `make lock`: {line}"


def test_the_project_names_the_locked_pythons() -> None:
    named = {line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if "Python ::" in line}
    assert named == {f"{major}.{minor}" for major, minor in PYTHONS}

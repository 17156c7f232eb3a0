"""The cluster file, which has the addresses of a FoundationDB cluster's coordinators."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from drillcore_fdb.errors import ClusterUnreachableError

ENVIRONMENT_VARIABLE = "FDB_CLUSTER_FILE"

_DEFAULT_PATH = Path(
    "/usr/local/etc/foundationdb/fdb.cluster" if sys.platform == "darwin" else "/etc/foundationdb/fdb.cluster"
)
_FORM = "description:id@address:port[:tls],..."
_COMMENT_OR_SPACE = re.compile(r"#[^\r\n]*|[ \t\r\n]")
_IDENTITY = re.compile(r"(?P<description>\w*):[A-Za-z0-9]*", re.ASCII)
_COORDINATOR = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}(:tls)?(\(fromHostname\))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClusterFile:
    path: Path
    description: str
    coordinators: tuple[str, ...]


def find_cluster_file(path: Path | None) -> Path:
    """The file that FoundationDB would use: `path`, else the environment's, the working directory's, the system's."""
    if path is not None:
        return path.absolute()
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named == "":
        raise ClusterUnreachableError(f"{ENVIRONMENT_VARIABLE} is set but empty: unset it or name the cluster file")
    if named is not None:
        return Path(named).absolute()
    here = Path("fdb.cluster").absolute()
    if here.exists():
        return here
    if _DEFAULT_PATH.exists():
        return _DEFAULT_PATH
    raise ClusterUnreachableError(
        f"No cluster file: none was given, {ENVIRONMENT_VARIABLE} is not set, and neither {here} nor {_DEFAULT_PATH} "
        "exists. Copy fdb.cluster from one of the cluster's servers and name it"
    )


def read_cluster_file(path: Path) -> ClusterFile:
    """Reads a cluster file. Raises `ClusterUnreachableError`, naming the file, if it cannot be read or parsed."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise ClusterUnreachableError(
            f"The cluster file {path} does not exist: copy fdb.cluster from one of the cluster's servers"
        ) from error
    except OSError as error:
        raise ClusterUnreachableError(f"The cluster file {path} cannot be read: {error.strerror}") from error
    return _parse(path, _COMMENT_OR_SPACE.sub("", text))


def _parse(path: Path, text: str) -> ClusterFile:
    # No stricter than FoundationDB's own parser, which reads the file again after us.
    if not text:
        raise _malformed(path, "it is empty")
    identity, at, addresses = text.partition("@")
    if not at:
        raise _malformed(path, "there is no @")
    matched = _IDENTITY.fullmatch(identity)
    if matched is None:
        raise _malformed(path, f"{identity!r} is not description:id, of letters, digits and _")
    coordinators = tuple(addresses.split(","))
    for coordinator in coordinators:
        if _COORDINATOR.fullmatch(coordinator) is None:
            raise _malformed(path, f"{coordinator!r} is not the address of a coordinator")
    return ClusterFile(path, matched["description"], coordinators)


def _malformed(path: Path, why: str) -> ClusterUnreachableError:
    return ClusterUnreachableError(f"The cluster file {path} is not of the form {_FORM}: {why}")

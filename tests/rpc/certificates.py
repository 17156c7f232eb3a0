"""Certificates made with the openssl command: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OPENSSL = shutil.which("openssl")


@dataclass(frozen=True)
class Certificate:
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """Signs certificates. Its own is what others trust."""

    directory: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.directory / f"{self.name}.pem"

    @classmethod
    def make(cls, directory: Path, name: str) -> Authority:
        authority = cls(directory, name)
        _openssl(
            directory,
            f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 2 -subj /CN={name} "
            f"-keyout {name}.key -out {name}.pem",
        )
        return authority

    def sign(self, name: str) -> Certificate:
        """A certificate for this machine's loopback address."""
        (self.directory / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
        _openssl(
            self.directory,
            f"req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -subj /CN={name} "
            f"-keyout {name}.key -out {name}.csr",
        )
        _openssl(
            self.directory,
            f"x509 -req -in {name}.csr -CA {self.name}.pem -CAkey {self.name}.key -CAcreateserial -days 2 "
            f"-extfile {name}.ext -out {name}.pem",
        )
        return Certificate(self.directory / f"{name}.pem", self.directory / f"{name}.key")


def _openssl(directory: Path, command: str) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *command.split()], cwd=directory, check=True, capture_output=True, timeout=30)

"""Reads an untrusted ZIP file: nothing is unpacked to disk, and no file is read beyond its declared size."""

from __future__ import annotations

import contextlib
import hashlib
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, BinaryIO, Final

from drillcore_formats.audit.findings import Malformed, Mismatch

MEMBERS_MAX: Final = 10_000
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_DESCRIPTORS: Final = {0: {0}, 0x08: {12, 16, 20, 24}}
"""Allowed sizes of the data descriptor behind a file, by the flag that says whether there is one."""
_ENCRYPTED: Final = 0x01
_PIECE_BYTES: Final = 1 << 20


@contextlib.contextmanager
def as_malformed(what: str) -> Iterator[None]:
    """Turns the errors of the ZIP reader for a damaged file into `Malformed`."""
    try:
        yield
    # The ZIP reader raises NotImplementedError for a compression or an encryption that it does not know.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"{what} cannot be read: {error}") from None


def open_zip(file: BinaryIO) -> zipfile.ZipFile:
    """Raises `Malformed` unless the file holds only plain files, each once, one after the other."""
    with as_malformed("the ZIP file"):
        archive = zipfile.ZipFile(file)
    members = archive.infolist()
    if len(members) > MEMBERS_MAX:
        raise Malformed(f"the ZIP file has {len(members):,} files, more than {MEMBERS_MAX:,}")
    seen: set[str] = set()
    for member in members:
        _check_member(member)
        if member.filename in seen:
            raise Malformed(f"the ZIP file has {member.filename} twice")
        seen.add(member.filename)
    if archive.comment:
        raise Malformed("the ZIP file has a comment, which nothing signs")
    with as_malformed("the ZIP file"):
        _check_layout(file, members, archive.start_dir)
    return archive


def _check_member(member: zipfile.ZipInfo) -> None:
    name = ascii(member.orig_filename)
    if member.orig_filename != member.filename or "/" in member.filename or "\\" in member.filename:
        raise Malformed(f"the ZIP file has a file whose name leads elsewhere: {name}")
    mode = member.external_attr >> 16
    if member.is_dir() or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
        raise Malformed(f"the ZIP file has something that is not a plain file: {name}")
    if member.flag_bits & _ENCRYPTED or member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise Malformed(f"the ZIP file has a file that is encrypted or compressed in an unknown way: {name}")


def _check_layout(file: BinaryIO, members: list[zipfile.ZipInfo], directory: int) -> None:
    """Raises `Malformed` if there are bytes between the files, which another reader could take for a file."""
    end, after = 0, {0}
    for member in sorted(members, key=lambda member: member.header_offset):
        if member.header_offset - end not in after:
            raise Malformed("the ZIP file has hidden parts between its files")
        file.seek(member.header_offset)
        *_, name_bytes, extra_bytes = _LOCAL.unpack(file.read(_LOCAL.size))
        end = member.header_offset + _LOCAL.size + name_bytes + extra_bytes + member.compress_size
        after = _DESCRIPTORS[member.flag_bits & 0x08]
    if directory - end not in after:
        raise Malformed("the ZIP file has hidden parts between its files")


def read_small(archive: zipfile.ZipFile, name: str, size_bytes_max: int) -> bytes:
    """The whole content of a small file. Raises `Malformed` if it is missing or too large."""
    if name not in archive.namelist():
        raise Malformed(f"the bundle has no {name}")
    with as_malformed(name), archive.open(name) as member:
        data = member.read(size_bytes_max + 1)
    if len(data) > size_bytes_max:
        raise Malformed(f"{name} has more than {size_bytes_max:,} bytes")
    return data


class CheckedMember(io.RawIOBase):
    """Reads a file of the ZIP file while hashing it, and never more than its declared size."""

    def __init__(self, member: IO[bytes], name: str, size_bytes: int, sha256: str) -> None:
        self._member = member
        self._name = name
        self._left = size_bytes
        self._sha256 = sha256
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # what RawIOBase passes
        with as_malformed(self._name):
            data = self._member.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise Mismatch(f"{self._name} is larger than the manifest says")
        self._hash.update(data)
        buffer[: len(data)] = data
        return len(data)

    def check(self) -> None:
        """Reads the rest. Raises `Mismatch` unless size and hash are those of the manifest."""
        while self.read(_PIECE_BYTES):
            pass
        if self._left:
            raise Mismatch(f"{self._name} is smaller than the manifest says")
        if self._hash.hexdigest() != self._sha256:
            raise Mismatch(f"{self._name} is not the file that the manifest was signed for")

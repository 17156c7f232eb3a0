"""Makes a copy in one pass over the corpus, with the digest of the JSON copy, which is the same for all formats."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

import orjson

from drillcore_server.exports.blocks import Block, Facts
from drillcore_server.exports.content import SIGNATURES
from drillcore_server.exports.json_copy import JsonCopy
from drillcore_server.exports.markdown_copy import MarkdownCopy
from drillcore_server.exports.prose import BlockMaker, audit_heading, audit_record
from drillcore_server.exports.walk import CorpusWalk
from drillcore_server.kernel.trail import time_text
from drillcore_server.signatures.messages import SignatureContent
from drillcore_server.storage.sealed_file import SealedFile


@dataclass(frozen=True, slots=True)
class About:
    """Facts about a copy that it shows on its front."""

    export_id: UUID
    store: UUID
    made_at: datetime
    made_by: str


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the bundle, made of one or more pieces."""

    name: str
    pieces: tuple[SealedFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)

    def read(self) -> Iterator[bytes]:
        for file in self.pieces:
            yield from file.pieces()

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for piece in self.read():
            digest.update(piece)
        return digest.hexdigest()


class HumanCopy(Protocol):
    """A copy for people: takes blocks, and returns its files at the end."""

    def take(self, block: Block) -> None: ...

    def end(self) -> list[Member]: ...


@dataclass(frozen=True, slots=True)
class Copied:
    """The files of a finished copy, and the digest of its JSON form."""

    members: list[Member]
    content_digest: str


def copy_json(walk: CorpusWalk, files: ExitStack, signed: Callable[[SignatureContent], object]) -> Copied:
    """Makes the JSON copy. Calls `signed` with each signature. Closing `files` closes the copy."""
    file = files.enter_context(SealedFile())
    copy = JsonCopy(file.write, walk.revision)
    for item in walk.items():
        copy.take(item)
        for signature in item.content.get(SIGNATURES, ()):
            signed(signature)
    copy.end()
    return Copied([Member("content.json", (file,))], file.sha256.hex())


def copy_for_people(
    walk: CorpusWalk, human: HumanCopy, trail: Iterable[bytes], signed: Callable[[SignatureContent], object]
) -> Copied:
    """Makes a copy for people: the corpus, then the audit trail. `trail` has its lines of NDJSON."""
    digest = hashlib.sha256()
    copy, maker = JsonCopy(digest.update, walk.revision), BlockMaker()
    for item in walk.items():
        copy.take(item)
        for block in maker.blocks_of(item):
            human.take(block)
        for signature in item.content.get(SIGNATURES, ()):
            signed(signature)
    copy.end()
    for block in maker.rest():
        human.take(block)
    for block in _trail_blocks(trail):
        human.take(block)
    return Copied(human.end(), digest.hexdigest())


def _trail_blocks(lines: Iterable[bytes]) -> Iterator[Block]:
    for number, line in enumerate(lines):
        content = orjson.loads(line)
        if number == 0:
            yield from audit_heading(content)
        elif "leaf" in content:
            yield audit_record(content)


class MarkdownFile:
    """The Markdown copy as a file of a bundle. The front is written at the end, because it has the contents."""

    def __init__(self, walk: CorpusWalk, about: About, files: ExitStack) -> None:
        self._title, self._facts = title_of(walk), front_facts(walk, about)
        self._body, self._front = files.enter_context(SealedFile()), files.enter_context(SealedFile())
        self._copy = MarkdownCopy(self._body.write)

    def take(self, block: Block) -> None:
        self._copy.take(block)

    def end(self) -> list[Member]:
        self._front.write(self._copy.front(self._title, self._facts))
        return [Member("content.md", (self._front, self._body))]


def title_of(walk: CorpusWalk) -> str:
    return walk.corpus.name


def front_facts(walk: CorpusWalk, about: About) -> Facts:
    vectors = "vectors stand here by their model, their dimensions and the SHA-256 of their numbers"
    return Facts(
        [
            ("Corpus", str(walk.corpus.id)),
            ("Revision", str(walk.revision)),
            ("Tenant", str(walk.corpus.tenant_id)),
            ("Store", str(about.store)),
            ("Export", str(about.export_id)),
            ("Made at", time_text(about.made_at)),
            ("Made by", about.made_by),
            ("Note", vectors),
        ]
    )

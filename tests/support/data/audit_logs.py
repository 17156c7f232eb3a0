"""A small valid log: real keys, real trees, and the files that a server makes of them."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from drillcore_formats.audit.checkpoints import Checkpoint, key_name, log_origin, make_checkpoint
from drillcore_formats.audit.keys import ChainedKey, KeyChain, vouch
from drillcore_formats.audit.leaves import Leaf, commit_to, signed_message
from drillcore_formats.audit.notes import ED25519, VerifierKey
from drillcore_formats.audit.pairs import make_pair
from drillcore_formats.audit.pins import Pins
from drillcore_formats.audit.proofs import make_proof
from tests.support.data import audit_trees

STORE = uuid.UUID("5707e000-0000-4000-8000-000000000001")
TENANT = uuid.UUID("7e4a4700-0000-4000-8000-000000000001")
NOW = "2026-03-04T05:06:07.000000Z"

Line = dict[str, Any]


@dataclass(frozen=True)
class Key:
    """A key pair that follows from its name and seed, so that a test makes the same files on each run."""

    name: str
    kind: int = ED25519
    seed: str = ""

    @cached_property
    def private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"{self.name} {self.seed}".encode()).digest())

    @cached_property
    def verifier(self) -> VerifierKey:
        return VerifierKey(self.name, self.private.public_key().public_bytes_raw(), self.kind)

    def sign(self, message: bytes) -> bytes:
        return self.private.sign(message)


def store_key(store: uuid.UUID = STORE, seed: str = "1") -> Key:
    return Key(key_name(store), seed=seed)


def canonical(value: Any) -> bytes:
    """Canonical JSON: the part of RFC 8785 that these records need."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@dataclass
class Log:
    """Appends records as a server does. `fork` makes another log that begins with the same records."""

    store: uuid.UUID = STORE
    log: uuid.UUID = TENANT
    keys: list[Key] = field(default_factory=lambda: [store_key()])
    lines: list[Line] = field(default_factory=list)
    """The lines of a complete export."""
    incarnation: int = 1

    def append(
        self,
        action: str = "ACCESS",
        *,
        private: Line | None = None,
        private_key: int = 1,
        erased: bool = False,
        key: Key | None = None,
        **said: Any,
    ) -> Line:
        record, salt, private_salt = self._uuid("record"), self._bytes("salt"), self._bytes("private salt")
        body = {
            "id": str(record),
            "store": str(self.store),
            "log": str(self.log),
            "at": NOW,
            "action": action,
            "call": "GetNode",
            "outcome": "OK",
            "operator": "alice",
            "nodes": ["a", "b"],
            **said,
        }
        line: Line = {"index": len(self.lines), "leaf": "", "salt": base64_text(salt), "body": body}
        if private is not None:
            body["private"] = {"commitment": commit_to(private_salt, canonical(private)).hex(), "key": private_key}
            line |= {"private_salt": base64_text(private_salt), "private": private}
        if erased:
            del line["private_salt"], line["private"]
            line["erased"] = True
        line["leaf"] = base64_text(self.leaf(record, commit_to(salt, canonical(body)), key).encode())
        self.lines.append(line)
        return line

    def leaf(self, record: uuid.UUID, commitment: bytes, key: Key | None = None) -> Leaf:
        key = key or self.keys[-1]
        signature = key.sign(signed_message(self.store, self.log, record, commitment))
        stamp = (len(self.lines) + 1).to_bytes(10, "big")
        return Leaf(self.store, self.log, self.incarnation, stamp, record, commitment, key.verifier.key_hash, signature)

    def rotate(self, seed: str) -> None:
        """Changes to another signing key, which the key before it vouches for."""
        self.keys.append(store_key(self.store, seed))

    def fork(self) -> Log:
        return Log(self.store, self.log, list(self.keys), json.loads(json.dumps(self.lines)), self.incarnation)

    def _bytes(self, purpose: str) -> bytes:
        return hashlib.sha256(f"{self.store} {self.log} {len(self.lines)} {purpose}".encode()).digest()[:16]

    def _uuid(self, purpose: str) -> uuid.UUID:
        return uuid.UUID(bytes=self._bytes(purpose), version=4)

    @property
    def leaves(self) -> list[bytes]:
        return [base64.b64decode(line["leaf"]) for line in self.lines]

    @property
    def chain(self) -> KeyChain:
        public = [key.verifier.public_key for key in self.keys]
        first = ChainedKey(1, public[0], NOW)
        rest = (
            vouch(self.store, number, public[number - 1], NOW, self.keys[number - 2].sign)
            for number in range(2, len(public) + 1)
        )
        return KeyChain(self.store, (first, *rest))

    def checkpoint(self, size: int | None = None, key: Key | None = None) -> str:
        size, key = len(self.lines) if size is None else size, key or self.keys[-1]
        checkpoint = Checkpoint(log_origin(self.store, self.log), size, audit_trees.root(self.leaves[:size]))
        return make_checkpoint(checkpoint, key.verifier, key.sign).encode()

    def header(self, **changed: Any) -> Line:
        return {
            "drillcore_audit": 1,
            "store": str(self.store),
            "log": str(self.log),
            "first": 0,
            "size": len(self.lines),
            "complete": True,
            "checkpoint": self.checkpoint(),
            "keys": self.chain.document(),
            "filter": {},
            **changed,
        }

    def export(self) -> list[Line]:
        return [self.header(), *json.loads(json.dumps(self.lines)), {"end": len(self.lines)}]

    def selection(self, indexes: Iterable[int], explaining: Iterable[int] = (), **header: Any) -> list[Line]:
        """An export of some records, each with its proof, and of the erasures that explain what those records lack."""
        chosen = [self.proven(index) for index in indexes]
        erasures = [self.proven(index) | {"of": "erasure"} for index in explaining]
        return [self.header(complete=False, **header), *chosen, *erasures, {"end": len(chosen)}]

    def proven(self, index: int) -> Line:
        return {**self.lines[index], "proof": list(map(base64_text, self.inclusion(index)))}

    def inclusion(self, index: int) -> list[bytes]:
        return audit_trees.inclusion(index, self.leaves)

    def proof(self, index: int, *, without: Sequence[str] = ()) -> str:
        record = {name: value for name, value in self.lines[index].items() if name not in {"index", "erased", *without}}
        return make_proof(index, self.inclusion(index), self.checkpoint(), record, self.chain)

    def pair(self, first: int, second: int | None = None) -> bytes:
        second = len(self.lines) if second is None else second
        proof = audit_trees.consistency(first, self.leaves[:second])
        return make_pair(self.checkpoint(first), self.checkpoint(second), proof, self.chain)

    @property
    def pins(self) -> Pins:
        """The pins of a verifier that was given the first key."""
        return Pins((self.keys[0].verifier,))


def make_log(records: int = 7, **kwargs: Any) -> Log:
    """A log of several kinds of actions, with and without a private part."""
    log = Log(**kwargs)
    for number in range(records):
        private = {"query": f"wörter {number}"} if number % 2 else None
        log.append("UPDATE" if number % 3 else "ACCESS", private=private, private_key=number)
    return log


def written(lines: Iterable[Line]) -> bytes:
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)

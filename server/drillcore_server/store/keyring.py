"""The keys that content is sealed under: one for each source, one for each corpus. A store of its own.

Erasing a source is destroying its key, so the keys are kept apart from what they seal: in another environment of
the embedded engine, in another directory of a cluster, and in no backup of the store. Each key is wrapped under
the keyring's master key, which is a file that only the server may read.

    (1, number)            a wrapped key and whose it is
    (2, corpus, source)    its number; the source as a keyed hash of 16 bytes, of nothing for the corpus's own key
    (3,)                   the last number given
    (4,)                   a word wrapped under the master key, to know that key again

A key is durable before anything is sealed under it. A number is never given twice.
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NewType

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_fdb.errors import StoreCorruptError, UnavailableError
from drillcore_fdb.tuples import Subspace
from drillcore_server.domain.ids import CorpusNumber, SourceId
from drillcore_server.secret_file import make_secret_file

KeyNumber = NewType("KeyNumber", int)
CORPUS_SCOPE: Final = SourceId("")
"""Stands for the corpus itself where a source is asked for: its summaries are made of many sources."""

_KEY_BYTES: Final = 32
_BATCH: Final = 2_000
"""Keys made in one transaction, well within five seconds."""
_NONCE_BYTES: Final = 12
_BY_NUMBER, _BY_SCOPE, _LAST, _CHECK = 1, 2, 3, 4
_CHECK_WORD: Final = b"drillcore keyring"


class KeyLostError(StoreCorruptError):
    """A key that records are sealed under is not in the keyring."""


class Keyring:
    def __init__(self, engine: Engine, root: Subspace, master_key: bytes) -> None:
        self._engine = engine
        self._root = root
        self._master = AESGCM(master_key)
        self._hash_key = hmac.digest(master_key, b"names of sources", "sha256")
        self._lock = threading.Lock()
        self._keys: dict[KeyNumber, tuple[bytes, AESGCM]] = {}
        self._numbers: dict[tuple[CorpusNumber, SourceId], KeyNumber] = {}

    @classmethod
    def open(cls, engine: Engine, root: Subspace, master_key_file: Path) -> Keyring:
        """The keyring with its master key, which is made with it. Servers that share a keyring share that file.

        Raises `KeyLostError` if the file is gone or is another's: what is sealed could not be read, so nothing new is
        sealed under a new key either.
        """
        check = engine.run(lambda tr: tr.get(root.pack((_CHECK,))))
        if check is not None and not master_key_file.exists():
            raise KeyLostError(
                f"the keyring's master key {master_key_file} is gone; restore it from its own backup, or copy it from "
                "a server that shares this keyring"
            )
        keyring = cls(engine, root, read_or_make_master_key(master_key_file))
        nonce = os.urandom(_NONCE_BYTES)
        made = nonce + keyring._master.encrypt(nonce, _CHECK_WORD, b"check")
        keyring._recognise(engine.run(lambda tr: _get_or_set(tr, root.pack((_CHECK,)), made), Options(idempotent=True)))
        return keyring

    def _recognise(self, check: bytes) -> None:
        try:
            self._master.decrypt(check[:_NONCE_BYTES], check[_NONCE_BYTES:], b"check")
        except InvalidTag as error:
            raise KeyLostError("the master key is not the one that this keyring was made with") from error

    def numbers(self, corpus: CorpusNumber, sources: Sequence[SourceId]) -> list[KeyNumber]:
        """The numbers of the keys of these sources, made where there are none."""
        wanted = [(corpus, source) for source in sources]
        missing = sorted({scope for scope in wanted if scope not in self._numbers})
        for start in range(0, len(missing), _BATCH):
            self._make(missing[start : start + _BATCH])
        return [self._numbers[scope] for scope in wanted]

    def _make(self, scopes: Sequence[tuple[CorpusNumber, SourceId]]) -> None:
        fresh = {scope: secrets.token_bytes(_KEY_BYTES) for scope in scopes}
        found = self._engine.run(
            lambda tr: {scope: self._find_or_make(tr, scope, key) for scope, key in fresh.items()},
            Options(idempotent=True),
        )
        with self._lock:
            self._numbers.update(found)

    def cipher(self, number: KeyNumber) -> AESGCM:
        """The key of this number, ready to use. Raises `KeyLostError` if it is not there."""
        return self._key(number)[1]

    def derived(self, number: KeyNumber, purpose: bytes) -> bytes:
        """A secret for another purpose, gone with the key it is made from."""
        return hmac.digest(self._key(number)[0], purpose, "sha256")

    def hashed(self, source: SourceId) -> bytes:
        """16 bytes that stand for a source in keys. Who has no master key cannot tell whose they are."""
        return hmac.digest(self._hash_key, source.encode(), "sha256")[:16]

    def _key(self, number: KeyNumber) -> tuple[bytes, AESGCM]:
        known = self._keys.get(number)
        if known is None:
            key = self._unwrap(number)
            known = key, AESGCM(key)
            with self._lock:
                self._keys[number] = known
        return known

    def _find_or_make(self, tr: Transaction, scope: tuple[CorpusNumber, SourceId], key: bytes) -> KeyNumber:
        corpus, source = scope
        place = self._root.pack((_BY_SCOPE, corpus, self.hashed(source)))
        stored = tr.get(place)
        if stored is not None:
            return KeyNumber(int.from_bytes(stored, "big"))
        last = tr.get(self._root.pack((_LAST,)))
        number = KeyNumber(int.from_bytes(last or b"", "big") + 1)
        tr.set(self._root.pack((_LAST,)), number.to_bytes(8, "big"))
        tr.set(place, number.to_bytes(8, "big"))
        tr.set(self._root.pack((_BY_NUMBER, number)), self._wrap(number, key))
        return number

    def _wrap(self, number: KeyNumber, key: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._master.encrypt(nonce, key, b"key %d" % number)

    def _unwrap(self, number: KeyNumber) -> bytes:
        stored = self._engine.run(lambda tr: tr.get(self._root.pack((_BY_NUMBER, number))))
        if stored is None:
            raise KeyLostError(
                f"the key {number} is not in the keyring: what is sealed under it cannot be read; "
                "restore the keyring from its own backup, unless the source was erased"
            )
        try:
            return self._master.decrypt(stored[:_NONCE_BYTES], stored[_NONCE_BYTES:], b"key %d" % number)
        except InvalidTag as error:
            raise KeyLostError(
                f"the key {number} cannot be unwrapped: the keyring's master key is not the one it was made with"
            ) from error


def _get_or_set(tr: Transaction, key: bytes, value: bytes) -> bytes:
    stored = tr.get(key)
    if stored is None:
        tr.set(key, value)
    return value if stored is None else stored


def read_or_make_master_key(path: Path) -> bytes:
    """The master key in a file that only its owner may read; made on first use."""
    if not path.exists():
        make_secret_file(path, secrets.token_bytes(_KEY_BYTES))
    if path.stat().st_mode & 0o077:
        raise UnavailableError(f"others may read the master key {path}: chmod 600 it")
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise UnavailableError(f"{path} is not a master key: it must have {_KEY_BYTES} bytes")
    return key

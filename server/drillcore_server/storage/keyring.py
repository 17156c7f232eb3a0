"""The encryption keys of content: one for each source, one for each corpus. The keyring is a store of its own.

Destroying the key of a source erases the source, so keys are kept apart from what they seal: in another environment of
the embedded engine, in another directory of a cluster, and in no backup of the store. Each key is wrapped under the
keyring's master key, which is a file that only the server may read.

    (1, number)            a wrapped key, or a note that it was destroyed, and when
    (2, corpus, source)    the key's number; the source as a keyed hash of 16 bytes, empty for the corpus's own key
    (3,)                   the last number given
    (4,)                   a word wrapped under the master key, to recognise that key

A key is durable before anything is sealed under it. Numbers are never reused. The keyring remembers destroyed keys for
ever, so a destroyed key (`KeyErased`) cannot be confused with a lost one (`KeyLostError`).
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NewType

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_fdb.errors import EngineError, StoreCorruptError, UnavailableError
from drillcore_fdb.tuples import Subspace
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, CorpusNumber, SourceId


def make_secret_file(path: Path, content: bytes) -> None:
    """Writes a new file that only its owner may read, whole or not at all. Makes its directory if needed.

    Durable on return.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.tmp")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def make_secret_file_once(path: Path, content: bytes) -> None:
    """Same as `make_secret_file`, but a file that is there stays: two servers that share the directory get one file."""
    draft = path.with_name(f"{path.name}-{secrets.token_hex(8)}.new")
    make_secret_file(draft, content)
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def is_private(path: Path) -> bool:
    """Whether only this server can read the file.

    The group may read a file that belongs to another user, since the server could not read it otherwise: Kubernetes
    mounts secrets as files of root, for the group of the pod.
    """
    found = path.stat()
    forbidden = 0o077 if found.st_uid == os.geteuid() else 0o037
    return not found.st_mode & forbidden


KeyNumber = NewType("KeyNumber", int)
CORPUS_SCOPE: Final = SourceId("")
"""The scope of a corpus's own key, in place of a source id. Summaries are made of many sources and need such a key."""
SNAPSHOT_SCOPE: Final = SourceId("index snapshots".ljust(SOURCE_CHARACTERS_MAX + 1))
"""Stands for the saved indexes of a corpus, which contain something of every source: each erasure destroys their key.
It is longer than any source's id, so it cannot be one."""

_KEY_BYTES: Final = 32
MASTER_KEY_BYTES: Final = 32
_BATCH: Final = 2_000
"""How many keys are made in one transaction, well within five seconds."""
_NONCE_BYTES: Final = 12
_BY_NUMBER, _BY_SCOPE, _LAST, _CHECK = 1, 2, 3, 4
_CHECK_WORD: Final = b"drillcore keyring"
_DESTROYED: Final = b"destroyed "
"""Replaces a destroyed key, followed by the time. A wrapped key is longer and begins with random bytes."""
_COMPOSITE: Final = b"drillcore composite key 1"
_COMPOSITES_MAX: Final = 1_000
"""How many composite ciphers are kept in memory."""
_NOT_FOUND_CODE: Final = 2015
"""FoundationDB's code for a missing key: nothing is wrong with the store."""


HOW_TO_JOIN: Final = (
    "If this is a new server of a cluster, run `drillcore cluster invite FILE` on a server that has the keys, and "
    "`drillcore serve --join FILE` here. Otherwise restore it from its own backup"
)


class KeyLostError(StoreCorruptError):
    """A key that records are sealed under is not in the keyring."""


class KeyErased(EngineError):  # noqa: N818 - not a failure: the key was destroyed on purpose
    """A key was destroyed on purpose, to erase what is sealed under it."""

    def __init__(self, number: int) -> None:
        super().__init__(_NOT_FOUND_CODE, f"the key {number} was destroyed: what is sealed under it is erased")
        self.number = number


class Keyring:
    def __init__(self, engine: Engine, root: Subspace, master_key: bytes, rewrite: Callable[[], object] = int) -> None:
        """`rewrite` removes deleted keys from the engine's free pages, for an engine that leaves them there."""
        self._engine = engine
        self._rewrite = rewrite
        self._root = root
        self._master = AESGCM(master_key)
        self._hash_key = hmac.digest(master_key, b"names of sources", "sha256")
        self._lock = threading.Lock()
        self._keys: dict[KeyNumber, tuple[bytes, AESGCM]] = {}
        self._numbers: dict[tuple[CorpusNumber, SourceId], KeyNumber] = {}
        self._composites: dict[tuple[KeyNumber, ...], AESGCM] = {}
        self._erased: set[KeyNumber] = set()
        self._erasures_known = 0
        self._epochs: dict[CorpusNumber, int] = {}
        self.on_erased: list[Callable[[Collection[CorpusNumber]], object]] = []
        """Called with the corpora when this server learns of erasures, so that caches can drop what was erased."""

    @classmethod
    def open(
        cls, engine: Engine, root: Subspace, master_key_file: Path, rewrite: Callable[[], object] = int
    ) -> Keyring:
        """Opens the keyring; a new one gets a new master key. Servers that share it share the file of its master key.

        Raises `KeyLostError` if the file is gone or belongs to another keyring: what is sealed could not be read, and
        nothing new must be sealed under a new key.
        """
        check = engine.run(lambda tr: tr.get(root.pack((_CHECK,))))
        is_new = not master_key_file.exists()
        if check is not None and is_new:
            raise KeyLostError(f"the keyring's master key {master_key_file} is gone. {HOW_TO_JOIN}")
        keyring = cls(engine, root, read_or_make_master_key(master_key_file), rewrite)
        nonce = os.urandom(_NONCE_BYTES)
        made = nonce + keyring._master.encrypt(nonce, _CHECK_WORD, b"check")
        check = engine.run(lambda tr: _get_or_set(tr, root.pack((_CHECK,)), made), Options(idempotent=True))
        try:
            keyring.recognise(check)
        except KeyLostError:
            if is_new:  # another server made the keyring at the same time
                master_key_file.unlink()
            raise
        return keyring

    @classmethod
    def check_master_key(cls, engine: Engine, root: Subspace, master_key: bytes) -> None:
        """Raises `KeyLostError` unless this is the master key of the keyring. Changes nothing."""
        check = engine.run(lambda tr: tr.get(root.pack((_CHECK,))))
        if check is None:
            raise KeyLostError("the store's keyring is empty; restore it from its own backup")
        cls(engine, root, master_key).recognise(check)

    def recognise(self, check: bytes) -> None:
        try:
            self._master.decrypt(check[:_NONCE_BYTES], check[_NONCE_BYTES:], b"check")
        except InvalidTag as error:
            raise KeyLostError("the master key is not the one that this keyring was made with") from error

    def numbers(self, corpus: CorpusNumber, sources: Sequence[SourceId]) -> list[KeyNumber]:
        """The numbers of the keys of these sources. Makes the keys that do not exist yet."""
        wanted = [(corpus, source) for source in sources]
        known = {scope: number for scope in wanted if (number := self._numbers.get(scope)) is not None}
        missing = sorted(set(wanted) - known.keys())
        for start in range(0, len(missing), _BATCH):
            known |= self._make(missing[start : start + _BATCH])
        return [known[scope] for scope in wanted]

    def _make(
        self, scopes: Sequence[tuple[CorpusNumber, SourceId]]
    ) -> Mapping[tuple[CorpusNumber, SourceId], KeyNumber]:
        fresh = {scope: secrets.token_bytes(_KEY_BYTES) for scope in scopes}
        found, made = self._engine.run(lambda tr: self._find_or_make(tr, fresh), Options(idempotent=True))
        with self._lock:
            self._numbers.update((scope, number) for scope, number in found.items() if number not in self._erased)
            self._keys.update((n, (key, AESGCM(key))) for n, key in made.items() if n not in self._erased)
        return found

    def find(self, corpus: CorpusNumber, source: SourceId) -> KeyNumber | None:
        """The number of a source's key. None if the source has none, or it was erased."""
        known = self._numbers.get((corpus, source))
        if known is None:
            place = self._root.pack((_BY_SCOPE, corpus, self.hashed(source)))
            stored = self._engine.run(lambda tr: tr.snapshot.get(place))
            known = None if stored is None else KeyNumber(int.from_bytes(stored, "big"))
        return None if known in self._erased else known

    def cipher(self, numbers: KeyNumber | Sequence[KeyNumber]) -> AESGCM:
        """The key of this number, or of several together, ready to use.

        Raises `KeyLostError` if one is not there, `KeyErased` if one was destroyed.
        """
        if isinstance(numbers, int):
            return self._key(numbers)[1]
        together = tuple(numbers)
        known = self._composites.get(together)
        if known is None:
            known = AESGCM(self.composite(together, _COMPOSITE))
            self._keep_composite(together, known)
        return known

    def _keep_composite(self, numbers: tuple[KeyNumber, ...], cipher: AESGCM) -> None:
        """Keeps a composite cipher: every search reads the master summary, which may be sealed under very many keys."""
        with self._lock:
            if len(self._composites) >= _COMPOSITES_MAX:
                self._composites.clear()
            if self._erased.isdisjoint(numbers):
                self._composites[numbers] = cipher

    def composite(self, numbers: Sequence[KeyNumber], purpose: bytes) -> bytes:
        """A secret derived from several keys. It cannot be derived any more once one of them is destroyed."""
        ordered = sorted(set(numbers))
        self._unwrap_all(ordered)
        secret = b"".join(number.to_bytes(8, "big") + self._key(number)[0] for number in ordered)
        return hmac.digest(secret, purpose, "sha256")

    def derived(self, number: KeyNumber, purpose: bytes) -> bytes:
        """A secret for another purpose. It cannot be derived any more once the key is destroyed."""
        return hmac.digest(self._key(number)[0], purpose, "sha256")

    def forget(self, numbers: Iterable[KeyNumber]) -> None:
        """Treats these keys as destroyed from now on, even if the keyring still has them.

        For keys that the store notes as erased: a server that has one in memory must not use it any more.
        """
        gone = set(numbers)
        with self._lock:
            self._erased |= gone
            self._composites.clear()
            for number in gone:
                self._keys.pop(number, None)
            self._numbers = {scope: number for scope, number in self._numbers.items() if number not in gone}

    def is_erased(self, number: KeyNumber) -> bool:
        """Whether this server knows that a key is destroyed, or about to be."""
        return number in self._erased

    @property
    def erasures_known(self) -> int:
        """How many of the store's notes of erasures this server knows; see `erasure_notes.py`."""
        return self._erasures_known

    def note_erasures(self, known: int, corpora: Collection[CorpusNumber]) -> None:
        """Notes that so many erasures are known now, and that they concern `corpora`."""
        with self._lock:
            self._epochs |= dict.fromkeys(corpora, known)
            self._erasures_known = max(self._erasures_known, known)
        for hear in self.on_erased:
            hear(corpora)

    def epoch(self, corpus: CorpusNumber) -> int:
        """A number that changes with every known erasure in a corpus. Do not use what was derived before a change."""
        return self._epochs.get(corpus, 0)

    def stored_and_destroyed(self, numbers: Collection[KeyNumber]) -> tuple[set[KeyNumber], set[KeyNumber]]:
        """The keys among these that the keyring has, and those that were destroyed. All others are lost."""
        wanted = sorted(numbers)
        places = [self._root.pack((_BY_NUMBER, number)) for number in wanted]
        stored = dict(zip(wanted, self._engine.run(lambda tr: tr.get_many(places)), strict=True))
        destroyed = {number for number, one in stored.items() if one is not None and one.startswith(_DESTROYED)}
        return {number for number, one in stored.items() if one is not None} - destroyed, destroyed

    def in_use_again(self, corpus: CorpusNumber, keys: Mapping[KeyNumber, bytes]) -> set[KeyNumber]:
        """The destroyed keys that are in use again, because the keyring was restored from an older copy."""
        places = [self._root.pack((_BY_SCOPE, corpus, source)) for source in keys.values()]
        stored = self._engine.run(lambda tr: tr.get_many(places))
        return {number for one, number in zip(stored, keys, strict=True) if one == number.to_bytes(8, "big")}

    def destroy(self, corpus: CorpusNumber, keys: Mapping[KeyNumber, bytes], at: datetime) -> None:
        """Destroys keys for good. `keys` maps each number to the keyed hash of its source. May be run again.

        When it returns, the keyring's files have them no more. The same source gets a new key when it needs one.
        """
        self.forget(keys)
        self._engine.run(lambda tr: self._mark_destroyed(tr, corpus, keys, at), Options(idempotent=True))
        self._rewrite()

    def _mark_destroyed(
        self, tr: Transaction, corpus: CorpusNumber, keys: Mapping[KeyNumber, bytes], at: datetime
    ) -> None:
        places = [self._root.pack((_BY_NUMBER, number)) for number in keys]
        scopes = [self._root.pack((_BY_SCOPE, corpus, source)) for source in keys.values()]
        stored = dict(zip([*places, *scopes], tr.get_many([*places, *scopes]), strict=True))
        for number, place, scope in zip(keys, places, scopes, strict=True):
            if not (stored[place] or b"").startswith(_DESTROYED):
                tr.set(place, _DESTROYED + at.isoformat(timespec="seconds").encode())
            if stored[scope] == number.to_bytes(8, "big"):
                tr.clear(scope)

    def hashed(self, source: SourceId) -> bytes:
        """16 bytes that stand for a source in keys. Who has no master key cannot tell whose they are."""
        return hmac.digest(self._hash_key, source.encode(), "sha256")[:16]

    def _key(self, number: KeyNumber) -> tuple[bytes, AESGCM]:
        known = self._keys.get(number)
        if known is None:
            self._unwrap_all([number])
            known = self._keys.get(number)
        if known is None:  # destroyed at this very moment
            raise KeyErased(number)
        return known

    def _unwrap_all(self, numbers: Iterable[KeyNumber]) -> None:
        """Has these keys in memory. Raises `KeyErased` or `KeyLostError` for the first that cannot be had."""
        missing = [number for number in numbers if number not in self._keys]
        if not missing:
            return
        if destroyed := [number for number in missing if number in self._erased]:
            raise KeyErased(destroyed[0])
        places = [self._root.pack((_BY_NUMBER, number)) for number in missing]
        stored = self._engine.run(lambda tr: tr.get_many(places))
        found = {number: self._unwrap(number, one) for number, one in zip(missing, stored, strict=True)}
        with self._lock:
            self._keys.update((n, (key, AESGCM(key))) for n, key in found.items() if n not in self._erased)

    def _find_or_make(
        self, tr: Transaction, fresh: Mapping[tuple[CorpusNumber, SourceId], bytes]
    ) -> tuple[dict[tuple[CorpusNumber, SourceId], KeyNumber], dict[KeyNumber, bytes]]:
        """The numbers of the keys of these scopes, and those of the `fresh` keys that were stored, because there was
        none."""
        places = [self._root.pack((_BY_SCOPE, corpus, self.hashed(source))) for corpus, source in fresh]
        last_place = self._root.pack((_LAST,))
        *stored, last_stored = tr.get_many([*places, last_place])
        last = before = int.from_bytes(last_stored or b"", "big")
        found: dict[tuple[CorpusNumber, SourceId], KeyNumber] = {}
        made: dict[KeyNumber, bytes] = {}
        for (scope, key), place, known in zip(fresh.items(), places, stored, strict=True):
            number = KeyNumber(int.from_bytes(known or b"", "big"))
            if known is not None and number not in self._erased:  # else it is about to be destroyed: leads nowhere
                found[scope] = number
                continue
            last += 1
            number = found[scope] = KeyNumber(last)
            made[number] = key
            tr.set(place, number.to_bytes(8, "big"))
            tr.set(self._root.pack((_BY_NUMBER, number)), self._wrap(number, key))
        if last != before:
            tr.set(last_place, last.to_bytes(8, "big"))
        return found, made

    def _wrap(self, number: KeyNumber, key: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._master.encrypt(nonce, key, b"key %d" % number)

    def _unwrap(self, number: KeyNumber, stored: bytes | None) -> bytes:
        if stored is None:
            raise KeyLostError(
                f"the key {number} is not in the keyring: what is sealed under it cannot be read; it was not "
                "destroyed by an erasure, so restore the keyring from its own backup"
            )
        if stored.startswith(_DESTROYED):
            raise KeyErased(number)
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
        try:
            make_secret_file_once(path, secrets.token_bytes(MASTER_KEY_BYTES))
        except OSError as error:
            raise UnavailableError(f"the master key {path} cannot be made: {error.strerror or error}") from error
    return read_master_key(path)


def read_master_key(path: Path) -> bytes:
    """Raises `UnavailableError` if others may read the file, or it is not a master key."""
    try:
        if not is_private(path):
            raise UnavailableError(f"others may read the master key {path}: chmod 600 it")
        key = path.read_bytes()
    except OSError as error:
        raise UnavailableError(f"the master key {path} cannot be read: {error.strerror or error}") from error
    if len(key) != MASTER_KEY_BYTES:
        raise UnavailableError(f"{path} is not a master key: it must have {MASTER_KEY_BYTES} bytes")
    return key

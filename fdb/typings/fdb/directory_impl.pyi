import builtins

from fdb.impl import Database, Transaction
from fdb.subspace_impl import Subspace

class Directory:
    def create_or_open(
        self, tr: Database | Transaction, path: tuple[str, ...], layer: bytes | None = None
    ) -> DirectorySubspace: ...
    def open(
        self, tr: Database | Transaction, path: tuple[str, ...], layer: bytes | None = None
    ) -> DirectorySubspace: ...
    def list(self, tr: Database | Transaction, path: tuple[str, ...] = ()) -> builtins.list[str]: ...
    def exists(self, tr: Database | Transaction, path: tuple[str, ...] = ()) -> bool: ...
    def remove_if_exists(self, tr: Database | Transaction, path: tuple[str, ...] = ()) -> bool: ...

class DirectoryLayer(Directory):
    def __init__(
        self, node_subspace: Subspace = ..., content_subspace: Subspace = ..., allow_manual_prefixes: bool = False
    ) -> None: ...

class DirectorySubspace(Subspace, Directory): ...

directory: DirectoryLayer

"""Values of msgpack, in bounded memory: some take sixty times as much of it as they have bytes in a file."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from drillcore.cores.failures import WrongShape
from drillcore.cores.limits import ITEM_CONTAINERS_MAX

_SMALL_BYTES: Final = 64 << 10
"""Cannot hold enough to matter."""


class Containers:
    """Counts lists and maps while they are made."""

    __slots__ = ("_count", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def begin(self) -> None:
        """With the next value."""
        self._count = 0

    def count(self, made: Any) -> Any:
        """For the hooks of msgpack. Raises `WrongShape` when there are too many."""
        self._count += 1
        if self._count > self._most:
            raise WrongShape(f"a part of it has more than {self._most:,} lists and maps")
        return made


def decoded(data: memoryview) -> object:
    """One value. Raises `WrongShape`."""
    try:
        if len(data) <= _SMALL_BYTES:
            return msgpack.unpackb(data)
        count = Containers(ITEM_CONTAINERS_MAX).count
        return msgpack.unpackb(data, list_hook=count, object_hook=count, max_ext_len=0)
    except WrongShape:
        raise
    except ValueError:
        raise WrongShape("a text is not UTF-8, or a key is not a text") from None

"""Ids, each of its own type so that one cannot be passed for another."""

from __future__ import annotations

import os
import threading
import time
from typing import NewType
from uuid import UUID

TenantId = NewType("TenantId", UUID)
CorpusId = NewType("CorpusId", UUID)
PrincipalId = NewType("PrincipalId", str)
AccountId = NewType("AccountId", UUID)
RecordId = NewType("RecordId", UUID)
"""Of an audit record."""
RequestId = NewType("RequestId", str)
DocumentId = NewType("DocumentId", UUID)
SourceId = NewType("SourceId", str)
NodeId = NewType("NodeId", UUID)
FactId = NewType("FactId", UUID)
CommunityId = NewType("CommunityId", UUID)
EnvelopeId = NewType("EnvelopeId", UUID)
TurnId = NewType("TurnId", UUID)
Revision = NewType("Revision", int)
"""Of a corpus: 0 before its first change, then one more with each."""
CorpusNumber = NewType("CorpusNumber", int)
"""A corpus's short name in keys. Never given twice."""

_lock = threading.Lock()
_last = 0
"""48 bits of milliseconds since 1970, then 12 that count within one."""


def new_uuid() -> UUID:
    """A new id that is greater than every one made before in this process, and than nearly all made before elsewhere.

    UUID version 7. Records made together lie together in the store: its pages fill up, and reading them is one scan.
    """
    global _last  # noqa: PLW0603 - the order of ids is the process's, as its clock is
    with _lock:
        _last = max(_last + 1, time.time_ns() // 1_000_000 << 12)
        at = _last
    milliseconds, count = at >> 12, at & 0xFFF
    chance = int.from_bytes(os.urandom(8), "big") >> 2
    return UUID(int=milliseconds << 80 | 7 << 76 | count << 64 | 0b10 << 62 | chance)

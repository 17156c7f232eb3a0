"""Ids, each of its own type so that one cannot be passed for another."""

from __future__ import annotations

from typing import NewType
from uuid import UUID

TenantId = NewType("TenantId", UUID)
CorpusId = NewType("CorpusId", UUID)
PrincipalId = NewType("PrincipalId", str)
RequestId = NewType("RequestId", str)

"""What tenants and corpora have in common: a name, metadata, a version, and who made them when."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput, Stale

NAME_CHARACTERS_MAX = 200
DESCRIPTION_CHARACTERS_MAX = 10_000
METADATA_ENTRIES_MAX = 100
METADATA_KEY_CHARACTERS_MAX = 200
METADATA_VALUE_CHARACTERS_MAX = 4_000


class Versioned(Protocol):
    @property
    def version(self) -> int: ...
    @property
    def updated_at(self) -> datetime: ...


def checked_name(name: str, field: str = "name") -> str:
    """The name in Unicode's composed form, so that names that look the same are the same."""
    composed = unicodedata.normalize("NFC", name)
    if not composed or len(composed) > NAME_CHARACTERS_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} needs 1 to {NAME_CHARACTERS_MAX} characters", field=field)
    if composed != composed.strip():
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} begins or ends with a space", field=field)
    if any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in composed):
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} has a control or invisible character", field=field)
    return composed


def checked_description(description: str) -> str:
    if len(description) > DESCRIPTION_CHARACTERS_MAX:
        message = f"description has over {DESCRIPTION_CHARACTERS_MAX} characters"
        raise BadInput(Reason.TOO_LARGE, message, field="description")
    return description


def checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata within its limits, sorted by key so that equal metadata is equal bytes."""
    if len(metadata) > METADATA_ENTRIES_MAX:
        raise BadInput(Reason.TOO_LARGE, f"metadata has over {METADATA_ENTRIES_MAX} entries", field="metadata")
    for key, value in metadata.items():
        if not key or len(key) > METADATA_KEY_CHARACTERS_MAX:
            message = f"a metadata key needs 1 to {METADATA_KEY_CHARACTERS_MAX} characters"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="metadata")
        if len(value) > METADATA_VALUE_CHARACTERS_MAX:
            message = f"a metadata value has over {METADATA_VALUE_CHARACTERS_MAX} characters"
            raise BadInput(Reason.TOO_LARGE, message, field="metadata")
    return dict(sorted(metadata.items()))


def changed_metadata(stored: Mapping[str, str], put: Mapping[str, str], remove: Iterable[str]) -> dict[str, str]:
    removed = set(remove)
    if both := removed & put.keys():
        message = f"metadata key {min(both)[:METADATA_KEY_CHARACTERS_MAX]!r} is both set and removed"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="remove_metadata")
    kept = {key: value for key, value in stored.items() if key not in removed}
    return checked_metadata({**kept, **put})


def check_version(record: Versioned, expected: int | None) -> None:
    if expected is not None and record.version != expected:
        message = f"the record is at version {record.version}, not {expected}; read it again"
        raise Stale(Reason.VERSION_MISMATCH, message, version=str(record.version))

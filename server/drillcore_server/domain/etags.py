"""The etag of an envelope: which facts it holds, whatever their order.

It does not say whether an envelope is still good: that is the state revision's to say.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from drillcore_server.domain.ids import FactId

PREFIX: Final = "sha256:"
_SEPARATOR: Final = "|"


def etag(ids: Iterable[FactId], salt: bytes = b"") -> str:
    """The SHA-256 of the sorted ids and their number.

    With a salt it is keyed (HMAC): the same facts have another etag in each session, and who sees both learns nothing.
    """
    names = sorted(map(str, ids))
    text = _SEPARATOR.join([*names, str(len(names))] if names else ["", "0"]).encode()
    digest = hmac.new(salt, text, hashlib.sha256) if salt else hashlib.sha256(text)
    return PREFIX + digest.hexdigest()

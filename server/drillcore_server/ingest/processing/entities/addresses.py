"""Email and web addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from drillcore_server.ingest.processing.entities.mentions import Mention

_EMAIL: Final = re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])")
_URL: Final = re.compile(
    r"(?:https?|ftp)://[^\s<>\"'“”\u2018\u2019{}|\\^`]{1,2000}|\bwww\.[^\s<>\"'“”\u2018\u2019{}|\\^`]{3,2000}"
)
_NOT_AT_THE_END: Final = ".,;:!?)]*_"


def addresses(text: str) -> Iterator[Mention]:
    if "@" in text:
        for found in _EMAIL.finditer(text):
            yield Mention(found.start(), "email", found[0].lower())
    if "://" in text or "www." in text:
        for found in _URL.finditer(text):
            yield Mention(found.start(), "url", _url(found[0]))


def _url(written: str) -> str:
    """The scheme and host in lower case, without the marks of the sentence it stands in."""
    address = written.rstrip(_NOT_AT_THE_END)
    scheme, there, rest = address.partition("://")
    if not there:
        scheme, rest = "http", address
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}".rstrip("/")

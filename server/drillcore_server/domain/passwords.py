"""What a password must be. Long rather than intricate: no characters are prescribed."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput

PASSWORD_CHARACTERS_MAX: Final = 1_024
DIFFERENT_CHARACTERS_MIN: Final = 5
_TELLING_CHARACTERS_MIN: Final = 4
"""Of a word that stands for a person; a shorter one is in many passwords by chance."""
_TRIMMINGS: Final = "0123456789!?.,;:-_*#$%&+=@ "


def composed(password: str) -> str:
    """The password as it is hashed: typed on another keyboard, it is the same."""
    return unicodedata.normalize("NFKC", password)


def check_password(
    password: str, *, characters_min: int, login: str, name: str, common: Collection[str], field: str = "new_password"
) -> None:
    """Raises `BadInput`, saying what is wrong, but never repeating it."""
    given = composed(password)
    if not characters_min <= len(given) <= PASSWORD_CHARACTERS_MAX:
        raise _refused(f"a password needs {characters_min} to {PASSWORD_CHARACTERS_MAX} characters", field)
    if len(set(given)) < DIFFERENT_CHARACTERS_MIN:
        raise _refused(f"a password needs {DIFFERENT_CHARACTERS_MIN} different characters", field)
    folded = given.casefold()
    if any(word in folded for word in _words_of(login, name)):
        raise _refused("a password must not hold the login or the name", field)
    if {folded, folded.strip(_TRIMMINGS), "".join(folded.split())} & set(common):
        raise _refused("the password is among the first that others try", field)


def _words_of(login: str, name: str) -> list[str]:
    words = [login, login.partition("@")[0], name, *name.split()]
    return [word.casefold() for word in words if len(word) >= _TELLING_CHARACTERS_MIN]


def _refused(message: str, field: str) -> BadInput:
    return BadInput(Reason.PASSWORD_REFUSED, message, field=field)

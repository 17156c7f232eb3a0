"""The `[auth]` table of the settings: how callers prove who they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DAY_S: Final = 86_400.0
SIGNED_BY_KEY_PAIR: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Algorithms with public keys. With any other algorithm the key set would be a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """`[[auth.oidc]]`: an issuer of tokens that this server trusts. Nothing is fetched from it."""

    issuer: str
    audience: str
    keys_file: Path
    """The file of its JSON Web Key Set. Read again when it changes."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    tenant_claim: str | None = None
    """A claim that must contain the id of the account's tenant, for an issuer that several tenants share."""
    clock_skew_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.issuer or not self.audience:
            raise ValueError("an issuer of tokens needs issuer and audience")
        if not self.algorithms or not set(self.algorithms) <= SIGNED_BY_KEY_PAIR:
            raise ValueError(f"algorithms of {self.issuer} must be among {', '.join(sorted(SIGNED_BY_KEY_PAIR))}")
        if not 0 <= self.clock_skew_s <= 600:
            raise ValueError("clock_skew_s must be 0 to 600")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    password_characters_min: int = 12
    password_age_s_max: float = 90 * _DAY_S
    """An older password must be changed at the next login. 0: passwords do not age."""
    passwords_remembered: int = 5
    """A new password must differ from this many earlier ones."""
    argon2_memory_kib: int = 65_536
    argon2_passes: int = 3
    argon2_lanes: int = 4
    hashes_at_once: int = 4
    """How many passwords are hashed at once, each with its own memory. More wait."""
    failures_max: int = 5
    """This many wrong passwords in a row lock an account."""
    lockout_s: float = 900.0
    session_s_max: float = _DAY_S / 2
    session_idle_s: float = 900.0
    """A session ends if it is not used for this long."""
    token_s_max: float = 90 * _DAY_S
    """The longest life of a service account's token."""
    oidc: tuple[OidcSettings, ...] = ()

    def __post_init__(self) -> None:
        for name in ("argon2_passes", "argon2_lanes", "hashes_at_once", "failures_max", "passwords_remembered"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("lockout_s", "session_s_max", "session_idle_s", "token_s_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
        if self.password_characters_min < 8:
            raise ValueError("password_characters_min must be at least 8")
        if self.password_age_s_max < 0:
            raise ValueError("password_age_s_max must be 0 or more")
        if self.argon2_memory_kib < 8 * self.argon2_lanes:
            raise ValueError("argon2_memory_kib must be at least 8 for each of argon2_lanes")
        issuers = [oidc.issuer for oidc in self.oidc]
        if len(set(issuers)) != len(issuers):
            raise ValueError("an issuer is named twice in [[auth.oidc]]")

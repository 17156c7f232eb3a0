"""Passwords: the rules for new passwords, and how they are stored."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.identity.credentials import Passwords
from drillcore_server.identity.settings import AuthSettings
from drillcore_server.kernel.errors import BadInput

FAST = AuthSettings(argon2_memory_kib=64, argon2_passes=1, argon2_lanes=1)
GOOD = "a passphrase of some length"


@pytest.fixture(scope="module")
def passwords() -> Passwords:
    return Passwords(FAST)


def refusal(passwords: Passwords, password: str, **account: str) -> str:
    with pytest.raises(BadInput) as caught:
        passwords.check_new(password, **{"login": "ann@acme.example", "name": "Ann Example", **account})
    assert caught.value.reason is Reason.PASSWORD_REFUSED
    assert len(password) < 5 or password not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("good", [GOOD, "horse of the battery", "пароль из многих слов", "0f8a7d6e5c4b", GOOD * 30])
def test_long_and_unusual_passwords_are_accepted(passwords: Passwords, good: str) -> None:
    passwords.check_new(good, login="ann@acme.example", name="Ann Example")


@pytest.mark.parametrize("short", ["", "a", "elevenchars", "elevenchare\u0301"])
def test_short_passwords_are_refused(passwords: Passwords, short: str) -> None:
    assert "12 to" in refusal(passwords, short)


def test_the_minimum_length_is_a_setting() -> None:
    strict = Passwords(replace(FAST, password_characters_min=30))
    with pytest.raises(BadInput, match="30 to"):
        strict.check_new(GOOD, login="ann", name="Ann")


def test_very_long_passwords_are_refused(passwords: Passwords) -> None:
    assert "1024" in refusal(passwords, "abcdef" * 200)


@pytest.mark.parametrize("bare", ["aaaaaaaaaaaa", "121212121212", "abcdabcdabcdabcd"])
def test_passwords_with_few_different_characters_are_refused(passwords: Passwords, bare: str) -> None:
    assert "different" in refusal(passwords, bare)


@pytest.mark.parametrize(
    "telling", ["ann@acme.example", "my ANN@ACME.example 1", "example of a secret", "1 ann example 1"]
)
def test_passwords_with_the_login_or_the_name_are_refused(passwords: Passwords, telling: str) -> None:
    assert "login or the name" in refusal(passwords, telling)


def test_a_short_name_does_not_rule_out_half_of_all_words(passwords: Passwords) -> None:
    passwords.check_new("planned annotations", login="ann", name="Ann Li")


@pytest.mark.parametrize(
    "common", ["Password1234", "qwertyuiop123", "passwordpassword!", "CorrectHorseBatteryStaple", "1q2w3e4r5t6y"]
)
def test_common_passwords_are_refused(passwords: Passwords, common: str) -> None:
    assert "first that others try" in refusal(passwords, common)


def test_the_last_passwords_are_refused_and_earlier_ones_are_not(passwords: Passwords) -> None:
    hashes = [passwords.hash(f"{GOOD} number {n}") for n in range(FAST.passwords_remembered + 1)]
    for number in range(FAST.passwords_remembered):
        with pytest.raises(BadInput, match="one of the last 5"):
            passwords.check_new(f"{GOOD} number {number}", login="ann", name="Ann", earlier=hashes)
    passwords.check_new(f"{GOOD} number 5", login="ann", name="Ann", earlier=hashes)


def test_only_the_right_password_is_accepted(passwords: Passwords) -> None:
    kept = passwords.hash(GOOD)
    assert kept.startswith("$argon2id$")
    assert GOOD not in kept
    assert passwords.hash(GOOD) != kept, "each hash has its own salt"
    assert passwords.is_right(kept, GOOD)
    for wrong in ("", GOOD[:-1], GOOD + " ", GOOD.upper(), GOOD * 1000):
        assert not passwords.is_right(kept, wrong)


def test_the_same_characters_in_another_unicode_form_are_the_same_password(passwords: Passwords) -> None:
    assert passwords.is_right(passwords.hash("caf\u00e9 of the corner"), "cafe\u0301 of the corner")


def test_no_password_is_right_without_an_account(passwords: Passwords) -> None:
    assert not passwords.is_right(None, GOOD)
    assert not passwords.is_right(None, "")


def test_a_damaged_hash_is_distinguished_from_a_wrong_password(passwords: Passwords) -> None:
    with pytest.raises(StoreCorruptError):
        passwords.is_right("$argon2id$damaged", GOOD)


def test_other_parameters_make_a_hash_outdated(passwords: Passwords) -> None:
    kept = passwords.hash(GOOD)
    assert not passwords.is_outdated(kept)
    stronger = Passwords(replace(FAST, argon2_passes=2))
    assert stronger.is_outdated(kept)
    assert stronger.is_right(kept, GOOD)


def test_the_number_of_passwords_hashed_at_once_is_limited(passwords: Passwords) -> None:
    one_at_a_time = Passwords(replace(FAST, hashes_at_once=1))
    under_way, most, lock = 0, 0, threading.Lock()
    hasher = one_at_a_time._hasher

    class Counting:
        def hash(self, password: str) -> str:
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            made = hasher.hash(password)
            with lock:
                under_way -= 1
            return made

    one_at_a_time._hasher = Counting()  # type: ignore[assignment]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one_at_a_time.hash, [GOOD] * 32))
    assert most == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"password_characters_min": 7},
        {"password_age_s_max": -1.0},
        {"failures_max": 0},
        {"lockout_s": 0.0},
        {"session_idle_s": 0.0},
        {"argon2_memory_kib": 8},
        {"hashes_at_once": 0},
    ],
)
def test_settings_that_would_protect_nothing_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        AuthSettings(**settings)  # type: ignore[arg-type]

"""Names, descriptions and metadata are kept exactly or refused with a reason."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from drillcore import AlreadyExists, Client, DrillcoreError, InvalidArgument, Reason
from drillcore_server.kernel.named import (
    DESCRIPTION_CHARACTERS_MAX,
    METADATA_ENTRIES_MAX,
    METADATA_KEY_CHARACTERS_MAX,
    METADATA_VALUE_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
)

REFUSED_NAMES = {
    "empty": "",
    "too long": "n" * (NAME_CHARACTERS_MAX + 1),
    "far too long": "n" * 1_000_000,
    "null": "a\x00b",
    "newline": "a\nb",
    "escape": "a\x1b[31mb",
    "delete": "a\x7fb",
    "next line": "a\x85b",
    "leading space": " a",
    "trailing space": "a ",
    "leading tab": "\ta",
    "only spaces": "   ",
    "no-break space at the end": "a\u00a0",
    "zero width space": "a\u200bb",
    "right to left override": "a\u202eb",
    "byte order mark": "\ufeffa",
    "line separator": "a\u2028b",
    "tag character": "a\U000e0041",
}

NAUGHTY_NAMES = [
    "a",
    "n" * NAME_CHARACTERS_MAX,
    "null",
    "None",
    "undefined",
    "0",
    "-1",
    "NaN",
    "true",
    "../../etc/passwd",
    "a/b\\c",
    "%s%n%00",
    "'; DROP TABLE corpora; --",
    '<script>alert("x")</script>',
    "{{7*7}}${7*7}",
    "$(reboot)`reboot`",
    "two  spaces",
    "Ünïcödé",
    "日本語の名前",
    "العربية",
    "🧪👩🏽",
    "\U0010fffd",
    "a\u0338\u0338\u0338",
    "\ue000 private",
    "\u0130stanbul \u0131stanbul",
    "\ufb01 ligature",
    "00000000-0000-0000-0000-000000000000",
    "_" * 50,
    "\u00ff\u0100",
]

NAUGHTY_TEXTS = [*NAUGHTY_NAMES, *(text for text in REFUSED_NAMES.values() if 0 < len(text) <= 200), "\U000fffff\x00"]


@pytest.mark.parametrize("name", REFUSED_NAMES.values(), ids=REFUSED_NAMES.keys())
def test_a_bad_name_is_refused_when_a_record_is_created(operator: Client, acme: Client, name: str) -> None:
    for create in (operator.create_tenant, acme.create_corpus):
        with pytest.raises(InvalidArgument) as caught:
            create(name)
        assert caught.value.reason is Reason.INVALID_ARGUMENT
        assert caught.value.metadata["field"] == "name"
    assert list(acme.iter_corpora()) == []


@pytest.mark.parametrize("name", ["", " a", "a\nb", "n" * (NAME_CHARACTERS_MAX + 1)], ids=ascii)
def test_a_bad_name_is_refused_when_a_record_is_renamed(operator: Client, acme: Client, name: str) -> None:
    corpus = acme.create_corpus("trials")
    for rename in (
        lambda: acme.update_corpus(corpus.id, name=name),
        lambda: operator.update_tenant(corpus.tenant_id, name=name),
    ):
        with pytest.raises(InvalidArgument) as caught:
            rename()
        assert caught.value.metadata["field"] == "name"
    assert acme.get_corpus(corpus.id) == corpus


def test_odd_names_are_kept_exactly_and_found(operator: Client, acme: Client) -> None:
    for name in NAUGHTY_NAMES:
        assert operator.create_tenant(name).name == name
        assert acme.create_corpus(name).name == name
        assert acme.get_corpus(name=name).name == name
        assert operator.get_tenant(name=name).name == name
    assert {corpus.name for corpus in acme.iter_corpora()} == set(NAUGHTY_NAMES)


def test_names_that_look_the_same_are_the_same(acme: Client) -> None:
    """Composed and decomposed letters are one name, kept in the composed form."""
    made = acme.create_corpus("Cafe\u0301")
    assert made.name == "Caf\u00e9"
    assert acme.get_corpus(name="Cafe\u0301") == acme.get_corpus(name="Caf\u00e9") == made
    with pytest.raises(AlreadyExists):
        acme.create_corpus("Caf\u00e9")


def test_a_name_is_measured_in_its_composed_form(acme: Client) -> None:
    assert acme.create_corpus("e\u0301" * NAME_CHARACTERS_MAX).name == "\u00e9" * NAME_CHARACTERS_MAX


def test_names_differ_by_case(acme: Client) -> None:
    assert acme.create_corpus("Trials").id != acme.create_corpus("trials").id


def test_odd_metadata_and_descriptions_are_kept_exactly(acme: Client) -> None:
    metadata = {text: text for text in NAUGHTY_TEXTS} | {"empty": "", "é": "composed", "e\u0301": "decomposed"}
    made = acme.create_corpus("trials", description="\n".join(NAUGHTY_TEXTS), metadata=metadata)
    assert made.metadata == metadata
    assert made.description == "\n".join(NAUGHTY_TEXTS)
    assert acme.get_corpus(made.id) == made


def test_metadata_and_a_description_at_their_limits_are_kept(acme: Client) -> None:
    """Four-byte characters make it the largest possible record."""
    metadata = {
        f"{number:03}" + "k" * (METADATA_KEY_CHARACTERS_MAX - 3): "🧪" * METADATA_VALUE_CHARACTERS_MAX
        for number in range(METADATA_ENTRIES_MAX)
    }
    made = acme.create_corpus("full", description="🧪" * DESCRIPTION_CHARACTERS_MAX, metadata=metadata)
    assert acme.get_corpus(made.id) == made
    assert made.metadata == metadata


OVER_THE_LIMIT: dict[str, tuple[Mapping[str, str], Reason]] = {
    "too many": ({f"key {n}": "" for n in range(METADATA_ENTRIES_MAX + 1)}, Reason.TOO_LARGE),
    "long value": ({"key": "v" * (METADATA_VALUE_CHARACTERS_MAX + 1)}, Reason.TOO_LARGE),
    "long key": ({"k" * (METADATA_KEY_CHARACTERS_MAX + 1): ""}, Reason.INVALID_ARGUMENT),
    "empty key": ({"": "value"}, Reason.INVALID_ARGUMENT),
}


@pytest.mark.parametrize(("metadata", "reason"), OVER_THE_LIMIT.values(), ids=OVER_THE_LIMIT.keys())
def test_metadata_over_a_limit_is_refused(
    operator: Client, acme: Client, metadata: Mapping[str, str], reason: Reason
) -> None:
    corpus = acme.create_corpus("trials", metadata={"kept": "yes"})
    for attempt in (
        lambda: acme.create_corpus("other", metadata=metadata),
        lambda: acme.update_corpus(corpus.id, set_metadata=metadata),
        lambda: operator.create_tenant("other", metadata=metadata),
        lambda: operator.update_tenant(corpus.tenant_id, set_metadata=metadata),
    ):
        with pytest.raises(DrillcoreError) as caught:
            attempt()
        assert caught.value.reason is reason
        assert caught.value.metadata["field"] == "metadata"
    assert acme.get_corpus(corpus.id) == corpus


def test_updates_cannot_add_up_to_more_metadata_than_is_allowed(acme: Client) -> None:
    full = acme.create_corpus("trials", metadata={f"key {n}": "" for n in range(METADATA_ENTRIES_MAX)})
    with pytest.raises(DrillcoreError) as caught:
        acme.update_corpus(full.id, set_metadata={"one more": ""})
    assert caught.value.reason is Reason.TOO_LARGE
    changed = acme.update_corpus(full.id, set_metadata={"one more": ""}, remove_metadata=["key 0"])
    assert len(changed.metadata) == METADATA_ENTRIES_MAX


def test_a_description_over_its_limit_is_refused(acme: Client) -> None:
    corpus = acme.create_corpus("trials")
    too_long = "d" * (DESCRIPTION_CHARACTERS_MAX + 1)
    for attempt in (
        lambda: acme.create_corpus("other", description=too_long),
        lambda: acme.update_corpus(corpus.id, description=too_long),
    ):
        with pytest.raises(DrillcoreError) as caught:
            attempt()
        assert caught.value.reason is Reason.TOO_LARGE
        assert caught.value.metadata["field"] == "description"
    assert list(acme.iter_corpora()) == [corpus]


@pytest.mark.parametrize("key", ["key", "k" * 100_000, "🧪" * 10_000], ids=["short", "long", "long and wide"])
def test_a_key_that_is_both_set_and_removed_is_refused(acme: Client, key: str) -> None:
    """This holds for a key of any length, since the refusal must fit into the headers of the answer."""
    corpus = acme.create_corpus("trials")
    with pytest.raises(InvalidArgument) as caught:
        acme.update_corpus(corpus.id, set_metadata={key: "value"}, remove_metadata=[key])
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert caught.value.metadata["field"] == "remove_metadata"


def test_a_refusal_that_shows_the_longest_name_arrives_whole(acme: Client) -> None:
    name = "🧪" * NAME_CHARACTERS_MAX
    acme.create_corpus(name)
    with pytest.raises(AlreadyExists) as caught:
        acme.create_corpus(name)
    assert name in caught.value.message

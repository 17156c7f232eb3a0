"""Signed notes, checkpoints and cosignatures follow C2SP, and everything else is refused."""

from __future__ import annotations

import pytest

from drillcore_formats.audit.checkpoints import Checkpoint, check_cosignatures, cosign, make_checkpoint
from drillcore_formats.audit.findings import Malformed, Untrusted, WrongSignature
from drillcore_formats.audit.notes import COSIGNATURE_V1, Note, VerifierKey, make_note
from tests.support.data.audit_logs import Key

# From Go's package golang.org/x/mod/sumdb/note, whose format C2SP took over.
PETERS_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
PETERS_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)

# From the test log of transparency-dev/tessera (Apache-2.0).
TESSERAS_KEY = "example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx"
TESSERAS_CHECKPOINT = (
    "example.com/log/testdata\n"
    "15\n"
    "rKbDipCvhuX1GZ7g5BBe8sA6BbJ7ja/1nk427v383cs=\n"
    "\n"
    "— example.com/log/testdata M9e0luh4jTG+UMBqOUo9/q+yAEvx1ilBEniMvjf1zfcBOhg+CKubMt53MvIt/uEWP6zdkdIQzd/fmwlM/dlPWF"
    "74ewI=\n"
)


@pytest.mark.parametrize(("key", "note"), [(PETERS_KEY, PETERS_NOTE), (TESSERAS_KEY, TESSERAS_CHECKPOINT)])
def test_a_note_of_another_implementation_is_read_written_and_verified(key: str, note: str) -> None:
    verifier, read = VerifierKey.parse(key), Note.parse(note)
    assert read.check([verifier]) == [verifier]
    assert read.encode() == note
    assert verifier.encode() == key


def test_a_checkpoint_of_another_implementation_is_read_and_written() -> None:
    text = Note.parse(TESSERAS_CHECKPOINT).text
    checkpoint = Checkpoint.parse(text)
    assert (checkpoint.origin, checkpoint.size, len(checkpoint.root)) == ("example.com/log/testdata", 15, 32)
    assert checkpoint.text == text


def test_the_same_key_makes_the_same_note() -> None:
    key = Key("signer")
    text = "first line\n\nthird line\n"
    note = make_note(text, (key.verifier, key.sign), (Key("other").verifier, Key("other").sign))
    assert Note.parse(note.encode()) == note
    assert note.check([key.verifier]) == [key.verifier]


def test_a_note_whose_text_was_changed_is_refused() -> None:
    with pytest.raises(WrongSignature, match="the note"):
        Note.parse(PETERS_NOTE.replace("your problem is", "the problem is")).check([VerifierKey.parse(PETERS_KEY)])


def test_a_note_that_only_strangers_signed_is_refused() -> None:
    with pytest.raises(Untrusted):
        Note.parse(PETERS_NOTE).check([Key("PeterNeumann").verifier])


def test_one_wrong_signature_of_a_trusted_key_spoils_the_note() -> None:
    key, other_key = Key("signer"), Key("other")
    forged = make_note("text\n", (key.verifier, key.sign), (other_key.verifier, key.sign))
    assert forged.check([key.verifier]) == [key.verifier]
    with pytest.raises(WrongSignature):
        forged.check([key.verifier, other_key.verifier])


@pytest.mark.parametrize(
    "note",
    [
        "",
        "no signature\n",
        "no signature\n\n",
        PETERS_NOTE.removesuffix("\n"),
        PETERS_NOTE.replace("\n", "\r\n"),
        PETERS_NOTE + "\n",
        PETERS_NOTE + "more\n",
        PETERS_NOTE.replace("—", "-"),
        PETERS_NOTE.replace("PeterNeumann ", "Peter+Neumann "),
        PETERS_NOTE.replace("PeterNeumann ", "Peter\N{NO-BREAK SPACE}Neumann "),
        PETERS_NOTE.replace("JnAM=", "JnAN="),
        PETERS_NOTE.replace("JnAM=", "JnAM"),
        PETERS_NOTE[: PETERS_NOTE.index("x08go")] + "x08gow==\n",
        "a\0b" + PETERS_NOTE,
        PETERS_NOTE + PETERS_NOTE.splitlines(keepends=True)[-1] * 100,
        "x" * 100_000 + PETERS_NOTE,
    ],
)
def test_a_text_that_is_no_note_is_refused(note: str) -> None:
    with pytest.raises(Malformed):
        Note.parse(note)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "name",
        "name+c74f20a3",
        PETERS_KEY.replace("c74f20a3", "c74f20a4"),
        PETERS_KEY.replace("PeterNeumann", "PeterNewmann"),
        PETERS_KEY[:-4],
        PETERS_KEY.replace("+AR", "+AB"),
        "x" * 1_000 + PETERS_KEY,
    ],
)
def test_a_text_that_is_no_verifier_key_is_refused(key: str) -> None:
    with pytest.raises(Malformed):
        VerifierKey.parse(key)


ROOT = "rKbDipCvhuX1GZ7g5BBe8sA6BbJ7ja/1nk427v383cs="


@pytest.mark.parametrize(
    "text",
    [
        "",
        "origin\n1\n",
        f"origin\n1\n{ROOT}",
        f"\n1\n{ROOT}\n",
        f"origin\n01\n{ROOT}\n",
        f"origin\n-1\n{ROOT}\n",
        f"origin\n+1\n{ROOT}\n",
        f"origin\n१\n{ROOT}\n",
        f"origin\n{1 << 63}\n{ROOT}\n",
        f"origin\n1\n{ROOT[:-4]}\n",
        f"origin\n1\n{ROOT}\n\n",
    ],
)
def test_a_text_that_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        Checkpoint.parse(text)


def cosigned(*witnesses: Key) -> Note:
    note = make_checkpoint(Checkpoint("log", 3, bytes(32)), Key("log").verifier, Key("log").sign)
    for witness in witnesses:
        note = cosign(note, witness.verifier, 1679315147, witness.sign)
    return note


def test_cosignatures_are_counted_and_say_when() -> None:
    first, second, third = (Key(name, COSIGNATURE_V1) for name in ("first", "second", "third"))
    note = Note.parse(cosigned(first, second).encode())
    found = check_cosignatures(note, [first.verifier, second.verifier, third.verifier], 2)
    assert {cosignature.witness.name: cosignature.at for cosignature in found} == {
        "first": 1679315147,
        "second": 1679315147,
    }
    with pytest.raises(Untrusted, match="by 2 of the witnesses, 3 are required"):
        check_cosignatures(note, [first.verifier, second.verifier, third.verifier], 3)


def test_the_message_of_a_cosignature_is_that_of_the_format() -> None:
    witness = Key("w", COSIGNATURE_V1)
    signature = cosigned(witness).signatures[-1].signature
    message = b"cosignature/v1\ntime 1679315147\nlog\n3\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
    assert signature == (1679315147).to_bytes(8, "big") + witness.sign(message)


def test_a_repeated_cosignature_counts_once() -> None:
    witness = Key("first", COSIGNATURE_V1)
    alias = VerifierKey("alias", witness.verifier.public_key, COSIGNATURE_V1)
    note = cosign(cosigned(witness, witness), alias, 1, witness.sign)
    assert len(check_cosignatures(note, [witness.verifier, alias], 1)) == 1


def test_a_cosignature_of_another_checkpoint_or_time_is_refused() -> None:
    witness = Key("first", COSIGNATURE_V1)
    note = cosigned(witness)
    with pytest.raises(WrongSignature, match="first"):
        check_cosignatures(Note(note.text.replace("3", "4"), note.signatures), [witness.verifier], 1)
    moved = make_note(note.text, (witness.verifier, lambda message: bytes(8) + witness.sign(message)))
    with pytest.raises(WrongSignature, match="first"):
        check_cosignatures(moved, [witness.verifier], 1)


def test_a_cosignature_without_a_time_or_of_another_length_is_refused() -> None:
    witness = Key("first", COSIGNATURE_V1)
    note = cosign(cosigned(), witness.verifier, 1 << 63, witness.sign)
    with pytest.raises(Malformed, match="out of range"):
        check_cosignatures(note, [witness.verifier], 1)
    short = make_note(note.text, (witness.verifier, witness.sign))
    with pytest.raises(Malformed, match="wrong length"):
        check_cosignatures(short, [witness.verifier], 1)


def test_a_plain_signature_of_a_witness_is_no_cosignature() -> None:
    witness = Key("first")
    note = make_note(Checkpoint("log", 3, bytes(32)).text, (witness.verifier, witness.sign))
    with pytest.raises(Untrusted):
        check_cosignatures(note, [Key("first", COSIGNATURE_V1).verifier, witness.verifier], 1)

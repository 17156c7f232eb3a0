"""Retention policies and legal holds as they are stored and checked."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.corpus_model import (
    RETENTION_DAYS_MAX,
    Corpus,
    HoldChange,
    LegalHold,
    RetentionChange,
    check_not_on_hold,
    kept_since,
)
from drillcore_server.kernel.corpus_store import CORPUS
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.storage.ids import CorpusId, CorpusNumber, PrincipalId, TenantId

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ME = PrincipalId("me")
ON, OFF = LegalHold(True, "a case", ME, AT), LegalHold(False, "settled", ME, AT)
PLAIN = Corpus(
    CorpusId(UUID(int=1)), TenantId(UUID(int=2)), "name", "", {}, AT, ME, AT, version=1, number=CorpusNumber(7)
)


def test_a_corpus_stored_before_retention_existed_keeps_everything_and_has_no_hold() -> None:
    names = [field.name for field in fields(Corpus)]
    older = msgspec.msgpack.decode(CORPUS.encode(PLAIN))[: names.index("retention_days")]
    assert CORPUS.decode(msgspec.msgpack.encode(older)) == PLAIN


@pytest.mark.parametrize("hold", [ON, OFF])
def test_a_policy_and_a_hold_are_read_back_unchanged(hold: LegalHold) -> None:
    corpus = replace(PLAIN, retention_days=30, legal_hold=hold)
    assert CORPUS.decode(CORPUS.encode(corpus)) == corpus


@pytest.mark.parametrize("days", [-1, 0, RETENTION_DAYS_MAX + 1])
def test_an_invalid_number_of_days_is_refused(days: int) -> None:
    with pytest.raises(BadInput):
        RetentionChange(days)


def test_the_longest_policy_reaches_back_a_century() -> None:
    assert RetentionChange(RETENTION_DAYS_MAX).days == RETENTION_DAYS_MAX
    assert kept_since(RETENTION_DAYS_MAX, AT) == AT - timedelta(days=RETENTION_DAYS_MAX)


def test_a_hold_can_be_put_on_again_after_its_release() -> None:
    later = AT + timedelta(days=1)
    assert HoldChange(True, "a case").applied(None, ME, AT) == ON
    assert HoldChange(False, "settled").applied(ON, ME, AT) == OFF
    assert HoldChange(True, "again").applied(OFF, ME, later) == LegalHold(True, "again", ME, later)


@pytest.mark.parametrize(
    ("old", "change", "reason"),
    [
        (ON, HoldChange(True, "another"), Reason.CORPUS_ON_HOLD),
        (None, HoldChange(False, "settled"), Reason.CORPUS_NOT_ON_HOLD),
        (OFF, HoldChange(False, "settled"), Reason.CORPUS_NOT_ON_HOLD),
    ],
)
def test_a_hold_is_not_put_on_twice_and_not_released_twice(
    old: LegalHold | None, change: HoldChange, reason: Reason
) -> None:
    with pytest.raises(NotReady) as caught:
        change.applied(old, ME, AT)
    assert caught.value.reason is reason


def test_only_an_active_hold_prevents_a_deletion() -> None:
    check_not_on_hold(None)
    check_not_on_hold(OFF)
    with pytest.raises(NotReady) as caught:
        check_not_on_hold(ON)
    assert "2026-01-02" in caught.value.message

"""Cache directives: which texts are accepted, which are refused, and what they mean."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_proto.reasons import Reason
from drillcore_server.facts.cache_directives import AGE_S_MAX, CacheDirectives, parse_directives
from drillcore_server.kernel.errors import BadInput, Missing

ALL = CacheDirectives(reuse_ckf=True, no_store=True, no_cache=True, only_if_ckf=True, max_age=timedelta(seconds=60))
TAKEN = {
    "": CacheDirectives(),
    " ": CacheDirectives(),
    "reuse-ckf": CacheDirectives(reuse_ckf=True),
    "no-store": CacheDirectives(no_store=True),
    "No-Store": CacheDirectives(no_store=True),
    "no-cache": CacheDirectives(no_cache=True),
    "only-if-ckf": CacheDirectives(only_if_ckf=True),
    "max-age=0": CacheDirectives(max_age=timedelta()),
    "MAX-AGE=60": CacheDirectives(max_age=timedelta(seconds=60)),
    f"max-age={AGE_S_MAX}": CacheDirectives(max_age=timedelta(seconds=AGE_S_MAX)),
    "reuse-ckf,no-store,no-cache,only-if-ckf,max-age=60": ALL,
    " max-age=60 ,\tonly-if-ckf,no-cache , no-store,reuse-ckf ": ALL,
}
REFUSED = [
    "store",
    "no_store",
    "no-store;no-cache",
    "no-store no-cache",
    ",",
    "no-store,",
    "no-store,,no-cache",
    "no-store=1",
    "no-store=",
    "no-store,NO-STORE",
    "max-age",
    "max-age=",
    "max-age=-1",
    "max-age=1.5",
    "max-age=+1",
    'max-age="60"',
    "max-age= 60",
    "max-age=\u0661",
    f"max-age={AGE_S_MAX + 1}",
    "max-age=" + "9" * 60,
    "max-age=1,max-age=2",
    "max-age=1,max-age=1",
    "no-store\0",
]


@pytest.mark.parametrize(("text", "meant"), TAKEN.items(), ids=range(len(TAKEN)))
def test_directives_are_accepted_in_any_order_and_case(text: str, meant: CacheDirectives) -> None:
    assert parse_directives(text) == meant


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_unknown_malformed_and_repeated_directives_are_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_directives(text)
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert caught.value.details["field"] == "cache_control"


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadInput) as caught:
        parse_directives(" " * 1_000)
    assert caught.value.reason is Reason.TOO_LARGE


@given(st.text(max_size=60))
def test_any_text_is_accepted_or_refused(text: str) -> None:
    with suppress(BadInput):
        parse_directives(text)


def test_facts_are_too_old_beyond_the_maximum_age_and_not_at_it() -> None:
    bound = CacheDirectives(max_age=timedelta(seconds=60))
    assert not bound.is_too_old(timedelta(seconds=60))
    assert bound.is_too_old(timedelta(seconds=61))
    assert not CacheDirectives().is_too_old(timedelta(days=9_999))


@pytest.mark.parametrize("best", [None, -1.0, 0.0, 0.499_999])
def test_only_if_ckf_fails_without_a_relevant_fact_and_says_424(best: float | None) -> None:
    CacheDirectives().check_relevant(best)
    with pytest.raises(Missing) as caught:
        CacheDirectives(only_if_ckf=True).check_relevant(best)
    assert caught.value.reason is Reason.NO_CKF_FACTS
    assert caught.value.details["CRP-Status"] == "424"


@pytest.mark.parametrize("best", [0.5, 0.75, 1.0])
def test_only_if_ckf_goes_on_with_a_relevant_fact(best: float) -> None:
    CacheDirectives(only_if_ckf=True).check_relevant(best)

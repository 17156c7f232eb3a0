"""Decomposition of any text, and of texts made of the words that it looks for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.envelopes.decomposition import SUB_QUERIES_MAX, decompose

LOOKED_FOR = (
    "compare contrast difference between vs versus and und et , ; ? . ( ) \" ' “ ” what how which is are must the a "
    "approaches requirements to for of regarding with GDPR HIPAA EU AI Act Terms Conditions consent electronic digital "
    "signatures explain list both those it"
)
PHRASES = st.lists(st.sampled_from(LOOKED_FOR.split()), max_size=25).map(" ".join)
TEXTS = st.text(max_size=200) | PHRASES | st.tuples(PHRASES, st.text(max_size=30)).map(" ".join)
NAMES = st.text("ABCDEFGHJKLMNPQRTUVWXYZ", min_size=2, max_size=6).filter(
    lambda name: name not in {"AND", "UND", "ET", "VS"}
)
SUBJECTS = st.sampled_from(
    ["consent", "automated decision-making", "audit trails and signatures", "the right to object"]
)


@settings(max_examples=1_000, deadline=None)
@given(TEXTS)
def test_sub_queries_are_few_not_empty_and_all_different(query: str) -> None:
    parts = decompose(query)
    assert len(parts) <= SUB_QUERIES_MAX
    assert all(part and part == " ".join(part.split()) for part in parts)
    assert len({part.casefold() for part in parts}) == len(parts)
    assert bool(parts) == bool(query.split())


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_the_whole_query_is_searched_unless_a_comparison_replaces_it(query: str) -> None:
    parts = decompose(query)
    whole = " ".join(query.split())
    assert not parts or parts[0] == whole or parts[-1].endswith(" comparison")
    assert len(parts) != 1 or parts == (whole,)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_additional_white_space_changes_nothing(query: str) -> None:
    assert decompose(query) == decompose(" ".join(query.split())) == decompose(f"\n {query}\t")


@given(PHRASES.filter(lambda text: not set(text) & set("\"“”'()")))
def test_nothing_is_split_within_quotation_marks(text: str) -> None:
    query = " ".join(f'"{text}"'.split())
    assert decompose(query) == (query,)


@given(st.lists(NAMES, min_size=2, max_size=7, unique=True), SUBJECTS)
def test_a_comparison_of_any_names_follows_the_specifications_example(names: list[str], subject: str) -> None:
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    expected = (*(f"{name} {subject}" for name in names), f"{' vs '.join(names)} comparison")
    assert decompose(f"Compare the {listed} approaches to {subject}") == expected[:SUB_QUERIES_MAX]

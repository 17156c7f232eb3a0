"""The page on compliance has every clause of 21 CFR Part 11, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "reference" / "compliance.md").read_text("utf-8")
CLAUSES = [
    *(f"11.10({letter})" for letter in "abcdefghijk"),
    "11.30",
    *("11.50(a)(1)", "11.50(a)(2)", "11.50(a)(3)", "11.50(b)"),
    "11.70",
    *("11.100(a)", "11.100(b)", "11.100(c)"),
    *("11.200(a)(1)", "11.200(a)(1)(i)", "11.200(a)(1)(ii)", "11.200(a)(2)", "11.200(a)(3)", "11.200(b)"),
    *(f"11.300({letter})" for letter in "abcde"),
]
ROWS = {
    cells[0].split()[0]: cells
    for line in PAGE.splitlines()
    if line.startswith("| 11.") and (cells := [cell.strip() for cell in line.strip("|").split("|")])
}
NAMED = re.compile(r"`([a-z_/]+\.py)::(\w+)`")


@cache
def names_in(file: Path) -> frozenset[str]:
    """The tests of a file, by name: functions, and state machines as pytest names them."""
    tree = ast.parse(file.read_text("utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    machines = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return frozenset(functions | {target.id for target in machines if isinstance(target, ast.Name)})


def test_every_clause_is_on_the_page_once() -> None:
    assert list(ROWS) == CLAUSES
    assert len(re.findall(r"^\| 11\.", PAGE, re.MULTILINE)) == len(CLAUSES)


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_names_tests_that_exist_or_is_procedural(clause: str) -> None:
    _clause, _behaviour, shown_by, _firm = ROWS[clause]
    named = NAMED.findall(shown_by)
    assert named or shown_by == "Procedural"
    assert shown_by.count("`") == 2 * len(named), "every name has the form file::function"
    for file, test in named:
        assert test in names_in(TESTS / file), f"{file} has no {test}"
        assert test.lower().startswith("test"), f"{test} is not a test"


def test_every_row_without_a_clause_names_tests_that_exist() -> None:
    section = PAGE.split("# Erasure, quarantine, residency")[1]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert rows
    for asked, _behaviour, shown_by, *_firm in rows:
        named = NAMED.findall(shown_by)
        assert named, f"no test shows: {asked}"
        assert shown_by.count("`") == 2 * len(named), "every name has the form file::function"
        assert [test for file, test in named if test not in names_in(TESTS / file)] == []


def test_the_page_claims_support_and_not_compliance() -> None:
    assert "Drillcore supports firms" in PAGE
    assert not re.search(r"Drillcore is (fully )?compliant|Part 11[- ]compliant", PAGE)

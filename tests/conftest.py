"""What every run of the tests reports: a run without FoundationDB says so in its summary."""

from collections.abc import Generator

import pytest

from tests.conformance import legs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Gives all tests skipped for want of a cluster one place, so that the summary counts them in one line."""
    report = yield
    if report.skipped and legs.NOT_RUN in str(report.longrepr):
        report.longrepr = (legs.__file__, 0, f"Skipped: {legs.NOT_RUN}")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    outcomes = [*terminalreporter.getreports("skipped"), *terminalreporter.getreports("error")]
    missed = sum(legs.NOT_RUN in str(report.longrepr) for report in outcomes if "conformance" in report.nodeid)
    if missed:
        only = f"({missed} tests of the conformance suite ran on the embedded engine only)"
        terminalreporter.write_line(f"{legs.NOT_RUN} {only}", yellow=True, bold=True)

"""What holds for every run of the tests, however it was started, and what a run without FoundationDB reports."""

import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.conformance import legs
from tests.support.stores import engines

pytest_plugins = ["tests.support.fixtures"]

# A shell ignores SIGINT for jobs it puts in the background, and every process they start would inherit that.
# With a handler here, processes that tests start get the default again.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing on a machine that has other things to do.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


engines.begin_run()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes what the tests kept on a cluster, once: after the processes that this one shared its tests with."""
    if not hasattr(config, "workerinput"):
        engines.remove_stores()


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

"""A pytest plugin for CI (``-p skips``): prints every skip with its reason, and fails the run for those not allowed."""

import pytest

ALLOWED = {"moses", "gpu"}  # they need what CI does not have

_skipped: list[tuple[str, str, bool]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append((report.nodeid, reason, bool(ALLOWED & set(report.keywords))))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not all(allowed for _, _, allowed in _skipped):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, reason, allowed in _skipped:
        terminalreporter.write_line(f"{'skipped' if allowed else 'MUST NOT SKIP'}: {name}: {reason}")

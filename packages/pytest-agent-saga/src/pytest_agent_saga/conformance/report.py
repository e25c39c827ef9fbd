"""The JSON report of the conformance suites of a run, from which support tables are made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1


class Reporter:
    """Collects results, also those of other processes, and writes them at the end."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._suites: dict[str, dict[str, dict[str, Any]]] = {}

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a result: of the call, or of what failed before or after it."""
        about = dict(report.user_properties).get("agent_saga_rule")
        if not isinstance(about, dict) or (report.when != "call" and report.passed):
            return
        rule = self._suites.setdefault(about["suite"], {}).setdefault(
            about["rule"], {"text": about["text"], "outcome": "passed", "variants": {}}
        )
        outcome, reason = _outcome(report, about)
        rule["variants"][about["variant"]] = {"outcome": outcome, "reason": reason}
        rule["outcome"] = _worst([one["outcome"] for one in rule["variants"].values()])

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        suites = {name: dict(sorted(rules.items())) for name, rules in sorted(self._suites.items())}
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._target.write_text(json.dumps({"format": FORMAT, "suites": suites}, indent=2) + "\n", "utf-8")


def _outcome(report: pytest.TestReport, about: dict[str, Any]) -> tuple[str, str]:
    if about["gap"] is not None and report.passed:
        return "gap", about["gap"]
    if hasattr(report, "wasxfail"):
        return ("failed" if report.passed else "expected_failure"), report.wasxfail
    return ("passed", "") if report.passed else ("failed", str(report.longrepr).rpartition("\n")[2])


def _worst(outcomes: list[str]) -> str:
    order = ("failed", "expected_failure", "gap", "passed")
    return min(outcomes, key=order.index)

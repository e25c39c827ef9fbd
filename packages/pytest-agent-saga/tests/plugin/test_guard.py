"""A suite cannot pass by being empty. Rule ids: GD-n."""

import json

import pytest

from pytest_agent_saga.conformance import Suite, examine, rule

SUITE = """
import contextlib
import pytest
from pytest_agent_saga.conformance.adapters import AdapterSuite
from tiny_adapter import TinyDriver


class TestAdapter(AdapterSuite):
    def driver(self, folder):
        return {driver}()

{body}
"""
pytestmark = pytest.mark.slow
GUARD = "test_no_rule_is_missing_or_weakened"


@pytest.fixture
def run(inner, request):
    tiny = request.path.parents[1] / "conformance"

    def run(body, *arguments, driver="TinyDriver", before=""):
        inner.write("conftest.py", f"import sys\nsys.path.insert(0, {str(tiny)!r})\n")
        inner.write(
            "test_it.py", SUITE.format(driver=driver, body=body).replace("\n\nclass", f"\n{before}\n\nclass", 1)
        )
        return inner.pytest(*arguments)

    return run


def test_a_removed_rule_is_noticed(run):
    """GD-1: setting a rule to None fails the guard, which names it."""
    code, printed = run("    test_intent_before_body = None", "-k", GUARD)
    assert code == 1
    assert "test_intent_before_body (AD-01) was removed" in printed


def test_an_overridden_rule_is_noticed(run):
    """GD-2: replacing a rule fails the guard."""
    code, printed = run("    def test_intent_before_body(self):\n        pass", "-k", GUARD)
    assert code == 1
    assert "AD-01) was overridden without xfail(strict=True, reason=...)" in printed


@pytest.mark.parametrize(("mark", "code"), [("strict=True, reason='#12'", 0), ("reason='#12'", 1), ("strict=True", 1)])
def test_an_expected_failure_needs_a_reason_and_must_fail(run, mark, code):
    """GD-3: a rule may be marked strictly, with a reason, and then has to fail."""
    body = f"""    @pytest.mark.xfail({mark})
    def test_schema_is_equal(self, case):
        assert False
"""
    found, printed = run(body, "-k", f"{GUARD} or test_schema_is_equal")
    assert found == code, printed


def test_an_expected_failure_that_passes_fails(run):
    """GD-4: an empty override does not pass."""
    body = "    @pytest.mark.xfail(strict=True, reason='#12')\n    def test_schema_is_equal(self, case):\n        pass"
    code, printed = run(body, "-k", "test_schema_is_equal")
    assert code == 1, printed
    assert "XPASS(strict)" in printed


def test_the_guard_cannot_be_replaced(run):
    """GD-5: a class that brings a guard of its own is refused when it is made."""
    code, printed = run(f"    def {GUARD}(self):\n        pass")
    assert code == 2
    assert "sees to it that no rule is missing" in printed


def test_skips_are_refused(run):
    """GD-6: a skipped rule, or suite, stops the collection."""
    body = "    @pytest.mark.skip\n    def test_schema_is_equal(self, case):\n        pass"
    code, printed = run(body)
    assert code == 4
    assert "cannot be skipped" in printed


@pytest.mark.parametrize("gaps", ["{}", "{Capability.PARALLEL: ' '}"])
def test_a_gap_needs_a_reason(run, gaps):
    """GD-7: a capability that is not declared is explained, or the guard fails."""
    driver = f"""
from pytest_agent_saga.conformance import Capability
class Less(TinyDriver):
    capabilities = TinyDriver.capabilities - {{Capability.PARALLEL}}
    gaps = {gaps}
"""
    code, printed = run("", "-k", GUARD, driver="Less", before=driver)
    assert code == 1
    assert "capability 'parallel' is not declared, and gaps() does not say why" in printed


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ("{Capability.SYNC}", "either leaves the run or is told"),
        ("{Capability.RAISES}", "neither sync nor async runs nothing"),
        ("TinyDriver.capabilities | {'flying'}", "there is no capability 'flying'"),
    ],
)
def test_some_capabilities_are_needed(run, capabilities, said):
    """GD-8: an adapter that runs nothing, or knows no errors, is none; unknown capabilities are none."""
    driver = f"""
from pytest_agent_saga.conformance import Capability
class Less(TinyDriver):
    capabilities = frozenset({capabilities})
    gaps = dict.fromkeys(set(Capability) - capabilities, 'not here')
"""
    code, printed = run("", "-k", GUARD, driver="Less", before=driver)
    assert code == 1, printed
    assert said in printed


def test_the_report_tells_each_rule(run, inner):
    """GD-9: the report has each rule with its variants, gaps and expected failures as such; with xdist too."""
    driver = """
from pytest_agent_saga.conformance import Capability
class Less(TinyDriver):
    capabilities = TinyDriver.capabilities - {Capability.PARALLEL, Capability.STREAMING}
    gaps = {Capability.PARALLEL: 'one at a time', Capability.STREAMING: 'no streams'}
"""
    body = """    @pytest.mark.xfail(strict=True, reason='#12')
    def test_schema_is_equal(self, case):
        assert False
"""
    wanted = "test_a_failing_sibling or test_schema_is_equal or test_ids_are_recorded"
    options = ("--conformance-report", "out/report.json", "-n", "2")
    code, printed = run(body, "-k", wanted, *options, driver="Less", before=driver)
    assert code == 0, printed
    (suite,) = json.loads((inner.folder / "out" / "report.json").read_text("utf-8"))["suites"].values()
    assert {name: found["outcome"] for name, found in suite.items()} == {
        "AD-02": "expected_failure",
        "AD-06": "passed",
        "AD-17": "gap",
    }
    assert suite["AD-17"]["variants"] == {"gap-parallel": {"outcome": "gap", "reason": "parallel: one at a time"}}
    assert set(suite["AD-06"]["variants"]) == {"sync", "async", "async-sync-tools"}


def test_a_rule_needs_an_id():
    """GD-10: a rule without an id is refused where it is written."""
    with pytest.raises(TypeError, match="must be '<ID>-<number>: <rule>'"):

        class Bad(Suite):
            @rule()
            def test_it(self, case):
                """It works."""


def test_examine_includes_the_guard(tmp_path):
    """GD-11: programs that examine many things notice a missing rule too."""
    from tiny_suite import Small, Smaller

    assert [result.outcome for result in examine(Small)] == ["passed", "passed"]
    assert examine(Smaller)[-1].outcome == "failed"

"""What a suite is: rules with ids, declared capabilities, and a guard against suites that pass by being empty."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

F = TypeVar("F", bound="Callable[..., None]")
C = TypeVar("C")

GUARD: Final = "test_no_rule_is_missing_or_weakened"
_ID: Final = re.compile(r"([A-Z]+-\d+): (.+)", re.DOTALL)
_FAILURES: Final = (Exception, pytest.fail.Exception)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a suite.

    Attributes:
        id: stable, as in reports and docs.
        text: the rule, in one sentence.
        needs: the capabilities without which it says nothing.
    """

    id: str
    text: str
    needs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way in which a rule is tried.

    Attributes:
        name: for the test's id; empty where there is only one way.
        value: what the suite makes of it.
        gap: why it is not tried; None when it is.
    """

    name: str = ""
    value: Any = None
    gap: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a rule in one variant.

    Attributes:
        outcome: `passed`, `failed`, `expected_failure` or `gap`.
        reason: of a failure or gap.
    """

    rule: str
    variant: str
    outcome: str
    reason: str = ""


def rule(*needs: str) -> Callable[[F], F]:
    """Return a decorator that makes a test of a suite a rule; its docstring is `<id>: <rule>`.

    Args:
        needs: the capabilities without which the rule says nothing.

    Raises:
        TypeError: the docstring has no id.
    """

    def mark(test: F) -> F:
        found = _ID.fullmatch(" ".join((test.__doc__ or "").split()))
        if found is None:
            raise TypeError(f"the docstring of {test.__qualname__} must be '<ID>-<number>: <rule>'")
        test.__rule__ = Rule(found[1], found[2], frozenset(needs))  # type: ignore[attr-defined]
        return test

    return mark


class Suite(Generic[C]):
    """Base of all suites. A subclass of a shipped suite names the thing under test; its rules are the suite's.

    Attributes:
        base: capabilities that cannot be left out.
    """

    base: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if GUARD in vars(cls):
            raise TypeError(f"{cls.__name__} replaces {GUARD}, which sees to it that no rule is missing")

    # -- what is under test ------------------------------------------------------------------------------------------

    def declared(self) -> frozenset[str]:
        """Return the capabilities of what is under test."""
        raise NotImplementedError

    def optional(self) -> frozenset[str]:
        """Return all capabilities that may be left out."""
        return frozenset()

    def gaps(self) -> Mapping[str, str]:
        """Return, for each optional capability that is not declared, why."""
        return {}

    def case(self, folder: Path, variant: Variant) -> contextlib.AbstractContextManager[C]:
        """Return what a rule gets to work with, made anew for each test."""
        raise NotImplementedError

    def ways(self, of: Rule) -> list[Variant]:
        """Return the ways in which a rule is tried when nothing is missing."""
        return [Variant()]

    # -- for pytest and reports -----------------------------------------------------------------------------------

    @classmethod
    def rules(cls) -> dict[str, Rule]:
        """Return the rules by the names of their tests."""
        found = {}
        for owner in reversed(cls.__mro__):
            found.update({name: test.__rule__ for name, test in vars(owner).items() if hasattr(test, "__rule__")})
        return found

    def plan(self, of: Rule) -> list[Variant]:
        """Return the ways in which a rule is tried; what is not declared gives one variant that says why."""
        missing = sorted(of.needs - self.declared())
        if missing:
            reasons = "; ".join(f"{name}: {self.gaps().get(name, '')}" for name in missing)
            return [Variant(name=f"gap-{'-'.join(missing)}", gap=reasons)]
        return self.ways(of) or [Variant(name="gap", gap="nothing that is declared can try it")]

    def test_no_rule_is_missing_or_weakened(self) -> None:
        """Each standard rule is there as shipped, or fails as expected for a stated reason; each gap is explained."""
        problems = [*self._changed_rules(), *self._unexplained()]
        assert problems == [], "\n".join(problems)

    def _changed_rules(self) -> Iterator[str]:
        cls = type(self)
        for name, known in _standard_rules(cls).items():
            test = getattr(cls, name, None)
            if test is known:
                continue
            if test is None or not callable(test):
                yield f"{name} ({known.__rule__.id}) was removed"
            elif not _is_strict_xfail(test):
                yield f"{name} ({known.__rule__.id}) was overridden without xfail(strict=True, reason=...)"

    def _unexplained(self) -> Iterator[str]:
        declared, optional, gaps = self.declared(), self.optional(), self.gaps()
        for name in sorted(self.base - declared):
            yield f"capability {str(name)!r} is a part of the contract and cannot be left out"
        for name in sorted(declared - self.base - optional):
            yield f"there is no capability {str(name)!r}"
        for name in sorted(optional - declared):
            if not gaps.get(name, "").strip():
                yield f"capability {str(name)!r} is not declared, and gaps() does not say why"
        for name in sorted(gaps.keys() & declared):
            yield f"capability {str(name)!r} is declared, and gaps() says that it is missing"


def _standard_rules(cls: type[Suite[Any]]) -> dict[str, Any]:
    """Return the rules that this distribution ships, as functions, by name."""
    ours = [owner for owner in reversed(cls.__mro__) if owner.__module__.partition(".")[0] == "pytest_agent_saga"]
    return {name: test for owner in ours for name, test in vars(owner).items() if hasattr(test, "__rule__")}


def _is_strict_xfail(test: Any) -> bool:
    return any(
        mark.name == "xfail" and mark.kwargs.get("strict") is True and str(mark.kwargs.get("reason", "")).strip()
        for mark in getattr(test, "pytestmark", ())
    )


def examine(suite: type[Suite[Any]], *, only: frozenset[str] | None = None, first: bool = False) -> list[Result]:
    """Run a suite without pytest: for programs that examine many things, such as mutants.

    Args:
        suite: with what is under test.
        only: ids of rules; None means all, and the guard.
        first: stop at the first failure.
    """
    done: list[Result] = []
    for name, known in suite.rules().items():
        if only is not None and known.id not in only:
            continue
        for variant in suite().plan(known):
            done.append(_tried(suite, name, known, variant))
            if first and done[-1].outcome == "failed":
                return done
    if only is None:
        done.append(_outcome(Rule("GUARD", "", frozenset()), Variant(), getattr(suite(), GUARD)))
    return done


def _tried(suite: type[Suite[Any]], name: str, known: Rule, variant: Variant) -> Result:
    if variant.gap is not None:
        return Result(rule=known.id, variant=variant.name, outcome="gap", reason=variant.gap)
    folder = Path(tempfile.mkdtemp(prefix="agent-saga-conformance-"))

    def run() -> None:
        instance = suite()
        with instance.case(folder, variant) as case:
            getattr(instance, name)(case)

    try:
        return _outcome(known, variant, run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _outcome(known: Rule, variant: Variant, run: Callable[[], None]) -> Result:
    try:
        run()
    except _FAILURES as error:
        reason = f"{type(error).__name__}: {error}"
        return Result(rule=known.id, variant=variant.name, outcome="failed", reason=reason)
    return Result(rule=known.id, variant=variant.name, outcome="passed")

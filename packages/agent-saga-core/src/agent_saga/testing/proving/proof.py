"""What `prove_rollback` returns: what was broken where, what was found, and how far it looked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal[
    "lying_compensation",
    "not_idempotent",
    "effect_despite_error",
    "missed_effect",
    "commits_despite_failure",
    "world_differs",
    "blind_snapshot",
    "nothing_to_prove",
    "compensation_fails",
    "needs_human",
]
Severity = Literal["violation", "assumption", "human"]

HEADLINES: Final[dict[Kind, str]] = {
    "lying_compensation": "the compensation says that it succeeded, and the effect stands",
    "not_idempotent": "the compensation ran again, as it may, and did something else than the first time",
    "effect_despite_error": "the tool raised, and its effect stands",
    "missed_effect": "the world changed and no report says so",
    "commits_despite_failure": "the saga committed although this step failed",
    "world_differs": "the report says clean, and the world differs",
    "blind_snapshot": "snapshot() does not see the world",
    "nothing_to_prove": "no call with an effect ran, so nothing was proven",
    "compensation_fails": "the compensation itself raised, and the effect stands",
    "needs_human": "stays in doubt, and a human must settle it",
}
_WHERE_MAX: Final = 3
"""How many executions the text names per finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or is only assumed to be right.

    Attributes:
        kind: what it is; `HEADLINES` has it in words.
        severity: `violation`: a report says what is not true of the world. `assumption`: the report is right only if
            what it assumes is (it says so itself, in `assumed_absent`). `human`: the report is right, and a human is
            needed.
        subject: the tool or compensator, or the saga.
        text: what was seen, and what to do.
        where: the executions that showed it.
    """

    kind: Kind
    severity: Severity
    subject: str
    text: str
    where: tuple[str, ...] = ()

    def format_text(self) -> str:
        """Return the finding for people."""
        more = len(self.where) - _WHERE_MAX
        shown = "; ".join(self.where[:_WHERE_MAX]) + (f"; and {more} more" if more > 0 else "")
        return f"{self.subject}: {HEADLINES[self.kind]}\n    {self.text}\n    seen when: {shown}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """One execution.

    Attributes:
        what: what was broken where; `unbroken` for the one that nothing was done to.
        reached: whether the run came to all of these places.
        sagas: how each saga and nested scope ended, in order of ending (`shop: rolled back, clean`).
        raised: the type of the exception that left the scenario, or None.
    """

    what: str
    reached: bool
    sagas: tuple[str, ...]
    raised: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackProof:
    """What `prove_rollback` found.

    Attributes:
        executions: how often the scenario ran.
        broken: what was broken in each execution, in order.
        findings: what was found, each once.
        bound: how far this looked, in words.
    """

    executions: int
    broken: tuple[Broken, ...]
    findings: tuple[Finding, ...]
    bound: str

    @property
    def proven(self) -> bool:
        """Whether no report said what is not true of the world; see `assumptions` for what they only assumed."""
        return not self.violations

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The findings that a report says something untrue."""
        return self._of("violation")

    @property
    def assumptions(self) -> tuple[Finding, ...]:
        """The findings that a report is right only if its assumptions are."""
        return self._of("assumption")

    @property
    def left_to_humans(self) -> tuple[Finding, ...]:
        """The steps that stay in doubt, as the report says."""
        return self._of("human")

    def _of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == severity)

    def format_text(self) -> str:
        """Return the proof for people: a verdict, the findings, the bound."""
        verdict = "proven" if self.proven else f"NOT proven: {len(self.violations)} violations"
        lines = [f"rollback {verdict}, in {self.executions} executions"]
        for title, findings in (
            ("violations", self.violations),
            ("assumed, and stated by the reports", self.assumptions),
            ("left to a human, and stated by the reports", self.left_to_humans),
        ):
            if findings:
                lines.append(f"{title}:")
                lines += [f"  {finding.format_text()}" for finding in findings]
        return "\n".join([*lines, f"bound: {self.bound}"])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable data."""
        return {
            "proven": self.proven,
            "executions": self.executions,
            "broken": [
                {"what": one.what, "reached": one.reached, "sagas": list(one.sagas), "raised": one.raised}
                for one in self.broken
            ],
            "findings": [
                {
                    "kind": finding.kind,
                    "severity": finding.severity,
                    "subject": finding.subject,
                    "text": finding.text,
                    "where": list(finding.where),
                }
                for finding in self.findings
            ],
            "bound": self.bound,
        }

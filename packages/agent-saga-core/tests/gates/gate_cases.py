"""What the gate tests share: calls, facts about a saga, a clock that a test moves, and attacks."""

from dataclasses import dataclass, field
from decimal import Decimal

from agent_saga.model.call import ProposedCall
from agent_saga.model.effects import Allow, Ask, Effect, Refuse
from agent_saga.model.report import StepReport


@dataclass
class Facts:
    """A saga as policies see it, with steps that a test states."""

    id: str = "saga-1"
    name: str = "test"
    tags: tuple[str, ...] = ()
    known: list[StepReport] = field(default_factory=list)
    live_in: dict[str, str] = field(default_factory=dict)
    report: object = None

    def steps(self, after=0):
        return tuple(self.known[after:])

    def step(self, step_id):
        return next(step for step in self.known if step.step_id == step_id)

    def places(self):
        gone = {"absent", "compensated", "accepted"}
        known = [step for step in reversed(self.known) if step.state not in gone and step.step_id in self.live_in]
        return tuple((self.live_in[step.step_id], step) for step in known)


class MovedClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now_s=1_796_083_200.0):  # 2026-12-01T00:00:00Z
        self.now_s = now_s

    def time_ns(self):
        return int(self.now_s * 1e9)

    def monotonic(self):
        return self.now_s

    def entropy(self, size):
        return bytes(size)

    def jitter(self):
        return 1.0


def call(tool="pay", effect=Effect.COMPENSABLE, *, compensator="refund", valid_for_s=None, lives_in=None, **kwargs):
    return ProposedCall(
        tool=tool,
        kwargs=kwargs,
        effect=Effect(effect),
        compensator=compensator,
        valid_for_s=valid_for_s,
        lives_in=lives_in,
    )


def step(no, tool="pay", state="standing", *, error=None, result="ok", saga="saga-1"):
    return StepReport(
        step_id=f"{saga}:{no}",
        tool=tool,
        effect="compensable",
        kwargs={},
        key=f"{saga}:{no}",
        state=state,
        attempts=0,
        reason="",
        result=result,
        error=error,
    )


def decide(policy, proposed, saga=None):
    return policy.decide(proposed, saga or Facts())


def refused(decision):
    """Return the reason of a refusal; anything else fails the test."""
    assert isinstance(decision, Refuse), decision
    assert decision.reason
    return decision.reason


def asked(decision):
    assert isinstance(decision, Ask), decision
    return decision


def allowed(decision):
    assert isinstance(decision, Allow), decision
    return decision.requires


class Odd:
    """An argument of a foreign type that claims to be a number."""

    def __float__(self):
        return 5.0

    def __int__(self):
        return 5

    def __lt__(self, other):
        return True

    __gt__ = __le__ = __ge__ = __lt__

    def __repr__(self):
        raise RuntimeError("no")


class Lying(int):
    """An integer that compares as small as one likes."""

    def __gt__(self, other):
        return False

    def __lt__(self, other):
        return False


UNREADABLE = {
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "text nan": "nan",
    "text inf": "Infinity",
    "Decimal nan": Decimal("NaN"),
    "Decimal snan": Decimal("sNaN"),
    "Decimal inf": Decimal("Infinity"),
    "True": True,
    "False": False,
    "None": None,
    "empty": "",
    "space": " 5",
    "newline": "5\n",
    "thousands": "1,000",
    "underscore": "1_000",
    "full-width digits": "\uff15",
    "arabic digits": "\u0665",
    "superscript": "\u00b2",
    "hex": "0x10",
    "two dots": "1.2.3",
    "words": "five",
    "currency": "$5",
    "expression": "1+1",
    "list": [5],
    "dict": {"amount": 5},
    "bytes": b"5",
    "complex": 5j,
    "foreign": Odd(),
    "subclass": Lying(5),
    "huge exponent": "1e999999999",
    "tiny exponent": "1e-999",
    "long": "1" * 5000,
    "huge int": 10**5000,
    "lone surrogate": "5\ud800",
    "zero width": "5\u200b",
}

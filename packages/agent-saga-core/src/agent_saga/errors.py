"""Every error that agent-saga raises.

```text
SagaError
├── UsageError                 fix your code; nothing happened
│   ├── UndeclaredTool         an undeclared tool was called inside a saga
│   ├── DeclarationError       a declaration that cannot work
│   ├── SagaClosed             a step began on a saga that accepts none any more
│   ├── ForeignSaga            the saga belongs to another process
│   └── NoSaga                 a tool that needs a saga was called without one
├── GateRefused                a policy or a human said no, before the effect
├── SagaBusy                   another owner holds the saga's key
├── AlreadyCommitted           a new effect in a saga whose key has committed
├── StepInDoubt                a call in doubt may not be repeated
├── ReplayUnavailable          the recorded result was not stored
├── UnboundCompensation        the effect happened and has no compensation
├── HandlerUnavailable         a compensator or probe is not loaded, or does not fit
├── SagaRolledBack             the saga ended rolled back, clean
│   ├── RollbackIncomplete     ... partial: the report names what is left
│   └── SagaDiverged           a resumed run did not claim what stands
├── Conflict                   raised by a compensator: somebody changed the thing since
├── OwnerReplaced              this process no longer owns the saga
├── StoreError
│   ├── LogFailed              a commit failed; nothing later may be called durable
│   ├── LogMissing             there is no log at this place
│   ├── LogUnusable            the place holds no log that this version can open
│   ├── RecordsPruned          the saga's records were pruned; its row and leaf are there
│   ├── KeyUnavailable         values are encrypted, and their key is not in the key ring
│   └── CorruptLog             a record, chain or derived row is damaged
└── InvariantViolation         our bug; all bets are off
SagaSuspended (BaseException)  the saga waits; the scope ends without rollback
```

Each class carries `effect` (`none | done | unknown`: what may have happened in the world because of the call that
raised), `retry` (`safe | with_key | never`) and a stable `code` with a page in the docs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from agent_saga.model.report import RollbackReport

EffectState = Literal["none", "done", "unknown"]
Retry = Literal["safe", "with_key", "never"]


class SagaError(Exception):
    """The root of all errors of agent-saga."""

    effect: ClassVar[EffectState] = "none"
    retry: ClassVar[Retry] = "safe"
    code: ClassVar[str] = "AS-0001"


class UsageError(SagaError):
    """The program uses agent-saga in a way that cannot work; nothing happened."""

    retry = "never"
    code = "AS-0100"


class UndeclaredTool(UsageError):
    """A tool without a declaration was called inside a saga; it did not run."""

    code = "AS-0101"


class DeclarationError(UsageError):
    """A declaration names parameters, paths or combinations that cannot work."""

    code = "AS-0102"


class SagaClosed(UsageError):
    """A step began on a saga that accepts no steps any more; the tool did not run."""

    code = "AS-0103"


class ForeignSaga(UsageError):
    """The saga belongs to another process (a fork or a worker); the tool did not run."""

    code = "AS-0104"


class NoSaga(UsageError):
    """A tool that must run inside a saga was called outside of one; it did not run."""

    code = "AS-0105"


class GateRefused(SagaError):
    """A policy or a human refused the call before its effect; the tool did not run."""

    retry = "never"
    code = "AS-0200"


class SagaBusy(SagaError):
    """Another live owner holds the saga with this key; nothing happened."""

    code = "AS-0300"


class AlreadyCommitted(SagaError):
    """A new effect was asked of a saga whose key has already committed; it did not run."""

    retry = "never"
    code = "AS-0301"


class StepInDoubt(SagaError):
    """An equal call is in doubt and cannot be settled, so it may not be repeated."""

    effect = "unknown"
    retry = "never"
    code = "AS-0302"


class ReplayUnavailable(SagaError):
    """An equal step stands, but its result was not stored and cannot be replayed; the tool did not run again."""

    effect = "done"
    retry = "never"
    code = "AS-0303"


class UnboundCompensation(SagaError):
    """The effect happened, and its compensation could not be bound from its result: the step is an orphan."""

    effect = "done"
    retry = "never"
    code = "AS-0304"


class HandlerUnavailable(SagaError):
    """A compensator, probe or verifier is not loaded, or the loaded one does not fit what the log recorded."""

    code = "AS-0305"


class SagaRolledBack(SagaError):
    """The saga ended rolled back and every known effect is compensated.

    Attributes:
        report: what is true now.
    """

    code = "AS-0400"

    def __init__(self, message: str, report: RollbackReport | None = None) -> None:
        super().__init__(message)
        self.report = report


class RollbackIncomplete(SagaRolledBack):
    """The saga ended rolled back, and something is left standing or unknown; `report` names it."""

    effect = "done"
    retry = "never"
    code = "AS-0401"


class SagaDiverged(SagaRolledBack):
    """A resumed run ended without claiming every standing step, so the saga was rolled back."""

    retry = "never"
    code = "AS-0402"


class Conflict(SagaError):
    """Raised by a compensator that refuses because somebody else changed the thing since.

    Args:
        before: the value before our step.
        ours: the value that our step left.
        now: the value that was found.
    """

    retry = "never"
    code = "AS-0403"

    def __init__(self, message: str = "", *, before: object = None, ours: object = None, now: object = None) -> None:
        super().__init__(message or f"changed since: before {before!r}, ours {ours!r}, now {now!r}")
        self.before, self.ours, self.now = before, ours, now


class OwnerReplaced(SagaError):
    """This process no longer owns the saga: another one claimed it, and nothing may be appended."""

    effect = "unknown"
    retry = "never"
    code = "AS-0500"


class StoreError(SagaError):
    """The log could not do what was asked."""

    code = "AS-0600"


class LogFailed(StoreError):
    """A commit to the log failed; in this process nothing later may be called durable, and no effect starts."""

    effect = "unknown"
    retry = "never"
    code = "AS-0601"


class LogMissing(StoreError):
    """There is no log at this place."""

    code = "AS-0602"


class LogUnusable(StoreError):
    """The place holds something that this version cannot open as a log."""

    retry = "never"
    code = "AS-0603"


class RecordsPruned(StoreError):
    """The records of a saga were pruned: only its row and its leaf are in the log."""

    retry = "never"
    code = "AS-0605"


class KeyUnavailable(StoreError):
    """Values are encrypted under a key that is not in the key ring, or is another one there; nothing was guessed.

    Attributes:
        saga_id: the saga concerned, or None.
        key_id: the key that is missing, or None.
    """

    code = "AS-0606"

    def __init__(self, message: str, *, saga_id: str | None = None, key_id: str | None = None) -> None:
        super().__init__(message)
        self.saga_id, self.key_id = saga_id, key_id


class CorruptLog(StoreError):
    """A record, a chain or a derived row of the log is damaged; the reader stopped there.

    Attributes:
        saga_id: the saga concerned, or None when the damage is not in one saga.
        n: the number of the record within the saga, or None.
        reason: what is wrong, in a few words.
    """

    retry = "never"
    code = "AS-0604"

    def __init__(self, reason: str, *, saga_id: str | None = None, n: int | None = None) -> None:
        where = f"saga {saga_id!r}" if saga_id else "the log"
        at = f", record {n}" if n is not None else ""
        super().__init__(f"{where}{at}: {reason}")
        self.saga_id, self.n, self.reason = saga_id, n, reason


class BadEvidence(SagaError):
    """A proof does not hold, or a note is not signed by the key that was named: it shows nothing."""

    retry = "never"
    code = "AS-0800"


class InvariantViolation(SagaError):
    """Something that the code relies on is not true: a bug of agent-saga. Stop and report it."""

    effect = "unknown"
    retry = "never"
    code = "AS-0900"


class SagaSuspended(BaseException):
    """The saga waits for an approval or a resume; its scope ends without commit or rollback.

    Attributes:
        saga_id: resume it with the same key, or by this id.
        approval: the request that waits for a decision, or empty.
    """

    effect: ClassVar[EffectState] = "none"
    retry: ClassVar[Retry] = "safe"
    code: ClassVar[str] = "AS-0700"

    def __init__(self, message: str, *, saga_id: str = "", approval: str = "") -> None:
        super().__init__(message)
        self.saga_id, self.approval = saga_id, approval

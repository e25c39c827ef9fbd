"""agent-saga: one transaction around everything an agent does.

Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # As in `typing`, whose import would cost more than all else here; type checkers know the name.
if TYPE_CHECKING:
    from typing import Any

    from agent_saga.errors import Conflict as Conflict
    from agent_saga.errors import GateRefused as GateRefused
    from agent_saga.errors import RollbackIncomplete as RollbackIncomplete
    from agent_saga.errors import SagaError as SagaError
    from agent_saga.errors import SagaRolledBack as SagaRolledBack
    from agent_saga.errors import SagaSuspended as SagaSuspended
    from agent_saga.kit import AgentKit as AgentKit
    from agent_saga.kit import compensator as compensator
    from agent_saga.kit import probe as probe
    from agent_saga.kit import saga_scope as saga_scope
    from agent_saga.kit import saga_tool as saga_tool
    from agent_saga.model.effects import ALREADY_DONE as ALREADY_DONE
    from agent_saga.model.effects import Allow as Allow
    from agent_saga.model.effects import Ask as Ask
    from agent_saga.model.effects import Effect as Effect
    from agent_saga.model.effects import Landed as Landed
    from agent_saga.model.effects import NotLanded as NotLanded
    from agent_saga.model.effects import Refuse as Refuse
    from agent_saga.model.effects import Unknowable as Unknowable
    from agent_saga.model.report import RollbackReport as RollbackReport
    from agent_saga.model.report import StepReport as StepReport
    from agent_saga.runtime.current import current_saga as current_saga
    from agent_saga.runtime.current import current_step as current_step
    from agent_saga.runtime.saga import Saga as Saga
    from agent_saga.store.keyring import KeyRing as KeyRing
    from agent_saga.testing.prove import prove_rollback as prove_rollback
    from agent_saga.testing.sim.verify import verify_rollback_invariants as verify_rollback_invariants
    from agent_saga.testing.sim.verify import verify_rollback_invariants_sync as verify_rollback_invariants_sync

_HOMES = {
    "agent_saga.errors": (
        "Conflict",
        "GateRefused",
        "RollbackIncomplete",
        "SagaError",
        "SagaRolledBack",
        "SagaSuspended",
    ),
    "agent_saga.kit": ("AgentKit", "compensator", "probe", "saga_scope", "saga_tool"),
    "agent_saga.model.effects": (
        "ALREADY_DONE",
        "Allow",
        "Ask",
        "Effect",
        "Landed",
        "NotLanded",
        "Refuse",
        "Unknowable",
    ),
    "agent_saga.model.report": ("RollbackReport", "StepReport"),
    "agent_saga.runtime.current": ("current_saga", "current_step"),
    "agent_saga.runtime.saga": ("Saga",),
    "agent_saga.store.keyring": ("KeyRing",),
    "agent_saga.testing.prove": ("prove_rollback",),
    "agent_saga.testing.sim.verify": ("verify_rollback_invariants", "verify_rollback_invariants_sync"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ALREADY_DONE",
    "AgentKit",
    "Allow",
    "Ask",
    "Conflict",
    "Effect",
    "GateRefused",
    "KeyRing",
    "Landed",
    "NotLanded",
    "Refuse",
    "RollbackIncomplete",
    "RollbackReport",
    "Saga",
    "SagaError",
    "SagaRolledBack",
    "SagaSuspended",
    "StepReport",
    "Unknowable",
    "compensator",
    "current_saga",
    "current_step",
    "probe",
    "prove_rollback",
    "saga_scope",
    "saga_tool",
    "verify_rollback_invariants",
    "verify_rollback_invariants_sync",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'agent_saga' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

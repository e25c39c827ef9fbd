"""Policies for the gate: small values that compose, each with one `decide(call, saga)`.

Pass them to `AgentKit(policies=[...])` or `kit.transaction(policies=[...])`, or load them from a file with
`policies_from_toml`. docs/gate.md explains them.
"""

from agent_saga.gates.bounds import Bounds as Bounds
from agent_saga.gates.breaker import CircuitBreaker as CircuitBreaker
from agent_saga.gates.budgets import Budget as Budget
from agent_saga.gates.budgets import RateLimit as RateLimit
from agent_saga.gates.card import UIConfirmationArtifact as UIConfirmationArtifact
from agent_saga.gates.compose import AllOf as AllOf
from agent_saga.gates.compose import FirstOf as FirstOf
from agent_saga.gates.compose import When as When
from agent_saga.gates.compose import all_of as all_of
from agent_saga.gates.compose import first_of as first_of
from agent_saga.gates.compose import when as when
from agent_saga.gates.consensus import Consensus as Consensus
from agent_saga.gates.freeze import FreezeWindow as FreezeWindow
from agent_saga.gates.freeze import WeeklyFreeze as WeeklyFreeze
from agent_saga.gates.healing import Fallback as Fallback
from agent_saga.gates.healing import HealingFailed as HealingFailed
from agent_saga.gates.healing import Problem as Problem
from agent_saga.gates.healing import SelfHealedProposal as SelfHealedProposal
from agent_saga.gates.healing import SelfHealingLoop as SelfHealingLoop
from agent_saga.gates.rules import AllowTools as AllowTools
from agent_saga.gates.rules import AllowValues as AllowValues
from agent_saga.gates.rules import DenyTools as DenyTools
from agent_saga.gates.rules import DenyValues as DenyValues
from agent_saga.gates.rules import EffectRule as EffectRule
from agent_saga.gates.rules import Quorum as Quorum
from agent_saga.gates.schema import ArgumentSchema as ArgumentSchema
from agent_saga.gates.toml import policies_from_toml as policies_from_toml
from agent_saga.gates.undo import CompensationWindow as CompensationWindow
from agent_saga.gates.undo import UndoPath as UndoPath

__all__ = [
    "AllOf",
    "AllowTools",
    "AllowValues",
    "ArgumentSchema",
    "Bounds",
    "Budget",
    "CircuitBreaker",
    "CompensationWindow",
    "Consensus",
    "DenyTools",
    "DenyValues",
    "EffectRule",
    "Fallback",
    "FirstOf",
    "FreezeWindow",
    "HealingFailed",
    "Problem",
    "Quorum",
    "RateLimit",
    "SelfHealedProposal",
    "SelfHealingLoop",
    "UIConfirmationArtifact",
    "UndoPath",
    "WeeklyFreeze",
    "When",
    "all_of",
    "first_of",
    "policies_from_toml",
    "when",
]

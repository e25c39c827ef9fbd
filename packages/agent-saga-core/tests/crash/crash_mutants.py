"""Seeded bugs: what a process with `mutant` in its job does wrong. A suite that lets one pass proves nothing."""

import os

from agent_saga.machine import plan
from agent_saga.model.effects import NotLanded
from agent_saga.runtime import compensate, live, rollback, settle
from agent_saga.store import owners


def effect_before_its_intent():
    """The effect does not wait for the commit of its intent."""

    def committed(self, ticket, **_):
        self.writer.note_work()
        return
        yield

    live.LiveSaga.committed = committed


def compensation_without_a_record():
    """A compensation runs before anything says so."""
    attempt = compensate._attempt

    def early(saga, step, budget):
        recipe = compensate._recipe(step)
        handler = compensate.compensator_for(recipe.name, recipe.version)
        kwargs, _ = compensate._kwargs(saga, step, recipe)
        yield from compensate._run(
            handler, kwargs | dict.fromkeys([recipe.key_param] if recipe.key_param else [], ""), recipe, budget
        )
        yield from attempt(saga, step, budget)

    compensate._attempt = early


def compensates_again_what_may_have_succeeded():
    """An attempt without an outcome is run again, although its compensator is neither idempotent nor takes the key."""
    plan._recheck = lambda step, *, verified: plan.Action.COMPENSATE


def a_new_key_for_each_process():
    """The key of a compensation is not the same in the next process."""
    key = compensate.compensation_key
    compensate.compensation_key = lambda *args: f"{key(*args)}-{os.getpid()}"


def doubt_is_taken_for_absence():
    """A step in doubt counts as one that did not happen, whatever the probe says."""

    def ask(_step, _fn):
        return NotLanded()
        yield

    settle._ask = ask


def leaves_out_the_last_step():
    """A rollback overlooks a step."""
    order = rollback.rollback_order
    rollback.rollback_order = lambda view, scope=0: order(view, scope)[1:]


def takes_the_living_for_dead():
    """A process that owns a saga is declared dead without a proof."""
    owners._try_lock = lambda _fd: True


MUTANTS = {
    mutant.__name__: mutant
    for mutant in (
        effect_before_its_intent,
        compensation_without_a_record,
        compensates_again_what_may_have_succeeded,
        a_new_key_for_each_process,
        doubt_is_taken_for_absence,
        leaves_out_the_last_step,
    )
}
"""Those that the matrix of C-1 must catch; `takes_the_living_for_dead` is for R-2."""

"""Acts I and II: the same agent on the same functions, without a saga and with one."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from agent_saga import AgentKit
from agent_saga.demo.agent import open_shop
from agent_saga.demo.stage import Played, check
from agent_saga.demo.tools import BARE, wrapped
from agent_saga.demo.world import DomainTaken

if TYPE_CHECKING:
    from agent_saga import Saga
    from agent_saga.demo.stage import Stage


def without_saga(stage: Stage) -> Played:
    """Run the agent on the bare functions.

    Raises:
        DemoFailed: it did not fail at its third step, or left something else than a charge and a server.
    """
    failed = False
    try:
        open_shop(BARE, "ann")
    except DomainTaken:
        failed = True
    played = Played.by("ann", stage.world, after=0)
    effects = [(attempt.tool, attempt.effect) for attempt in played.attempts]
    check(failed, "the agent of Act I did not fail")
    check(
        effects == [("charge", True), ("launch_server", True), ("register_domain", False)],
        f"Act I should charge, launch and be refused, not {effects}",
    )
    check(len(played.standing) == 2, f"Act I should leave a charge and a server, not {played.standing}")  # noqa: PLR2004
    return played


def with_saga(stage: Stage) -> Played:
    """Run the agent on the same functions, as tools in a saga.

    Raises:
        DemoFailed: the rollback was not clean, left something, or did not go backwards.
    """
    before = len(stage.world.attempts())
    saga: Saga | None = None
    failed = False
    with closing(AgentKit(log=stage.log)) as kit:
        try:
            with kit.transaction("open shop") as saga:
                open_shop(wrapped(kit), "ben")
        except DomainTaken:
            failed = True
    report = saga.report if saga else None
    played = Played.by("ben", stage.world, after=before, report=report)
    check(failed, "the agent of Act II did not fail")
    check(report is not None and report.clean, f"Act II should be clean, not {report}")
    check(not played.standing, f"Act II should leave nothing, not {played.standing}")
    effects = [attempt.tool for attempt in played.attempts if attempt.effect]
    check(
        effects == ["charge", "launch_server", "stop_server", "refund"],
        f"Act II should be compensated in reverse order, not {effects}",
    )
    return played

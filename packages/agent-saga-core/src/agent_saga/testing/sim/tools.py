"""The tools, compensators, probes and verifiers of the simulated world, declared the way users declare theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import Conflict
from agent_saga.kit import compensator
from agent_saga.model.effects import ALREADY_DONE, Landed, NotLanded, Unknowable
from agent_saga.runtime.current import current_step
from agent_saga.runtime.declaration import make_declaration
from agent_saga.runtime.registry import register_function
from agent_saga.testing.sim.world import TRAVEL_S, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent_saga.runtime.declaration import CallView, Declaration
    from agent_saga.runtime.registry import BoundCall
    from agent_saga.testing.sim.stage import Stage

_on: list[Stage] = []
SETTLE_S: Final = TRAVEL_S + 1.0
FAR_S: Final = 60.0
"""How long a request may travel of which that is said: longer than a rollback or sweep waits for it."""
WORK_S: Final = 2 * SETTLE_S
"""How long a tool works before it sends: longer than a request travels, so the time of the intent says nothing."""


def stage() -> Stage:
    """Return the stage on which the simulation plays."""
    return _on[-1]


def enter_stage(new: Stage) -> None:
    """Let the tools act on this stage."""
    _on.append(new)


def leave_stage() -> None:
    """Let the tools act on the stage before."""
    _on.pop()


class StillRunning(Exception):
    """The call goes on in its thread after its caller's patience; the driver turns it into a timeout."""

    def __init__(self, item: str, key: str) -> None:
        super().__init__(item)
        self.item, self.key = item, key


def _act(item: str, idempotency_key: str = "") -> dict[str, str]:
    here = stage()
    step = current_step()
    here.judge.effect_starts(item, idempotency_key, step)
    act = _act_of(here, item)
    match act:
        case "fail":
            raise Refused(item)
        case "doubt-":
            raise TimeoutError(item)
        case "late+" | "late-":
            raise StillRunning(item, idempotency_key)
        case "travel":
            here.pass_time(WORK_S)
            land_at = here.clock.now_ns + int(TRAVEL_S * 1e9)
            here.world.travelling = (*here.world.travelling, (land_at, item, idempotency_key))
            here.changed(f"{item} was sent")
            raise ConnectionResetError(item)
    land(here, item, idempotency_key)
    if act == "doubt+":
        raise TimeoutError(item)
    return {"id": item}


_FIRST: Final = {"again-": "doubt+", "okfail": "ok"}
_REPEATED: Final = {"again-": "fail", "okfail": "fail"}


def _act_of(here: Stage, item: str) -> str:
    act = here.specs[item].act
    first = here.world.started("act", item) == 1
    return _FIRST.get(act, act) if first else _REPEATED.get(act, "ok")


def _stream(item: str, idempotency_key: str = "") -> Iterator[int]:
    here = stage()
    here.judge.effect_starts(item, idempotency_key, current_step())
    act = _act_of(here, item)
    land(here, item, idempotency_key)
    yield 1
    if act == "stream!":
        raise Refused(item)
    yield 2


def land(here: Stage, item: str, key: str) -> None:
    """Let an effect happen."""
    here.world.land(item, key)
    here.changed(f"{item} happened")


def _undo(item: str, key: str = "") -> object:
    here = stage()
    here.judge.compensation_starts(item, key)
    number, undo = here.world.started("undo", item), here.specs[item].undo
    fails = {"fail": 1 << 30, "once": 1, "thrice": 3}.get(undo, 0)
    if number <= fails:
        here.world.note("undo failed", item, key)
        here.changed(f"the compensation of {item} failed")
        raise Refused(item)
    if undo == "conflict":
        raise Conflict(before=0, ours=1, now=2)
    if number == 1 and undo in {"doubt-", "deaf-"}:
        raise TimeoutError(item)
    if undo == "lie" and number == 1:
        return None
    if undo == "already" and not here.world.standing(item):
        return ALREADY_DONE
    here.world.undo(item, key)
    here.changed(f"{item} was compensated")
    if number == 1 and undo in {"doubt+", "deaf+", "already"}:
        raise TimeoutError(item)
    return None


def _verify(charge_id: str) -> bool:
    here = stage()
    here.judge.asked("a verifier")
    undo = here.specs[charge_id].undo
    if undo in {"deaf+", "deaf-"}:
        raise Refused(charge_id)
    if undo == "hidden" and here.world.started("look", charge_id) == 1:
        return False
    return not here.world.standing(charge_id)


@compensator("sim.keyed")
def keyed(charge_id: str, idempotency_key: str) -> object:
    """Takes the key: the remote knows a repeat."""
    return _undo(charge_id, idempotency_key)


@compensator("sim.keylook", verify=_verify)
def keylook(charge_id: str, idempotency_key: str) -> object:
    """Takes the key, and can be read back."""
    return _undo(charge_id, idempotency_key)


@compensator("sim.idem", idempotent=True)
def idem(charge_id: str) -> object:
    """A repeat does no harm."""
    return _undo(charge_id)


@compensator("sim.plain")
def plain(charge_id: str) -> object:
    """A repeat does harm, and nobody can look."""
    return _undo(charge_id)


@compensator("sim.look", verify=_verify)
def look(charge_id: str) -> object:
    """A repeat does harm; it can be read back."""
    return _undo(charge_id)


@compensator("sim.absent", safe_if_absent=True)
def absent(charge_id: str, idempotency_key: str) -> object:
    """May run although there is no effect."""
    return _undo(charge_id, idempotency_key)


def _by_callable(call: CallView) -> BoundCall:
    return keyed.with_(charge_id=call.result["id"])


def _probe(key: str, kwargs: dict[str, Any]) -> Landed | NotLanded:  # noqa: ARG001 - it is called by name.
    stage().judge.asked("a probe")
    stands = stage().world.standing(kwargs["item"])  # One that was compensated was another call's.
    return Landed({"id": kwargs["item"]}) if stands else NotLanded()


def _blind(key: str, kwargs: dict[str, Any]) -> Unknowable:  # noqa: ARG001 - it is called by name.
    return Unknowable("simulated")


def _mumble(key: str, kwargs: dict[str, Any]) -> object:
    """First it fails, then it says what is no answer, then it answers."""
    asked = stage().world.started("probe", kwargs["item"])
    if asked == 1:
        raise Refused(kwargs["item"])
    return _probe(key, kwargs) if asked > MUMBLES else False


MUMBLES: Final = 2
MUMBLING: Final = register_function("sim.mumbling", _mumble)
PROBE: Final = register_function("sim.probe", _probe)
BLIND: Final = register_function("sim.blind", _blind)

_HOW: Final[dict[str, dict[str, Any]]] = {
    "keyed": {"compensate": keyed.bind(charge_id="result.id")},
    "idem": {"compensate": idem.bind(charge_id="result.id")},
    "plain": {"compensate": plain.bind(charge_id="result.id")},
    "look": {"compensate": look.bind(charge_id="result.id")},
    "keylook": {"compensate": keylook.bind(charge_id="result.id")},
    "absent": {"compensate": absent.bind(charge_id="kwargs.item")},
    "probe": {"compensate": keyed.bind(charge_id="result.id"), "probe": PROBE},
    "travel": {"compensate": keyed.bind(charge_id="result.id"), "probe": PROBE, "settle_s": SETTLE_S},
    "slow": {"compensate": absent.bind(charge_id="kwargs.item"), "settle_s": SETTLE_S},
    "mumbling": {"compensate": keyed.bind(charge_id="result.id"), "probe": MUMBLING},
    "blind": {"compensate": keyed.bind(charge_id="result.id"), "probe": BLIND},
    "keytool": {"compensate": keyed.bind(charge_id="result.id"), "key_param": "idempotency_key"},
    "callable": {"compensate": _by_callable},
    "final": {},
    "unbound": {"compensate": keyed.bind(charge_id="result.nothing")},
    "retried": {"compensate": keyed.bind(charge_id="result.id"), "key_param": "idempotency_key", "retry": 2},
    "far": {"compensate": keyed.bind(charge_id="result.id"), "probe": PROBE, "settle_s": FAR_S},
    "farslow": {"compensate": absent.bind(charge_id="kwargs.item"), "settle_s": FAR_S},
    "named": {"compensate": keyed.bind(charge_id="kwargs.item")},
    "held": {"compensate": keyed.bind(charge_id="result.id"), "resources": ("shared",)},
}


class Tools:
    """The tools by item, each declared once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Declaration] = {}

    def tool(self, item: str, decl: str, *, streams: bool = False) -> tuple[Declaration, Callable[..., Any]]:
        """Return the declaration and the function of an item's tool."""
        made = self._made.get((item, decl))
        if made is None:
            effect = "irreversible" if decl == "final" else "compensable"
            made = self._made[item, decl] = make_declaration(tool_name(item), effect, **_HOW[decl])
        return made, _stream if streams else _act


def tool_name(item: str) -> str:
    """Return the name of an item's tool: one each, so that a record names the item."""
    return f"tool.{item}"

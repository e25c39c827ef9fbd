"""A robot arm: angles and voltages stay within bounds, moves are rate limited, a jammed motor is left alone."""

from agent_saga import AgentKit, GateRefused, compensator
from agent_saga.gates import Bounds, CircuitBreaker, RateLimit

arm: dict[str, object] = {"angle": 0, "voltage": None, "jammed": False}


@compensator("arm.back", idempotent=True)
def move_back(angle: int) -> None:
    arm["angle"] = angle


def move_arm(angle: object, voltage: object = "5 V") -> object:
    if arm["jammed"]:
        raise ValueError("the motor does not turn")
    before = arm["angle"]
    arm["angle"], arm["voltage"] = angle, voltage
    return before


POLICIES = [
    Bounds(tool="move_arm", argument="angle", min=-90, max=90, unit="deg"),
    Bounds(tool="move_arm", argument="voltage", min="3.0", max="6.0", unit="V", allowed_units=("mV",)),
    CircuitBreaker(tool="move_arm", failures=2, open_for_s=60),
    RateLimit(name="moves", calls=6, window=1.0, tool="move_arm"),
]


def main() -> None:
    kit = AgentKit("memory:", policies=POLICIES)
    move = kit.wrap(move_arm, effect="reversible", compensate=move_back.bind(angle="result"))

    def attempt(angle: object, voltage: object = "5 V") -> None:
        try:
            move(angle, voltage)
            print(f"moved to {angle}")
        except (GateRefused, ValueError) as error:
            print(f"{type(error).__name__}: {str(error).rpartition('effect: ')[2]}")

    with kit.transaction("reach") as saga:
        attempt(45)
        attempt("1e3")
        attempt(float("nan"))
        attempt(30, "12 V")
        attempt("30 deg", "5500 mV")
        arm["jammed"] = True
        attempt(10)
        attempt(20)
        attempt(5)
        arm["jammed"] = False
        saga.roll_back("the part fell")
    print(f"{saga.report.outcome}, clean: {saga.report.clean}; the arm is at {arm['angle']}")
    kit.close()

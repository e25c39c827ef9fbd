"""A small shop. Run as `python shop.py MODE`; its world is a file with a line for each effect and compensation."""

import os
import signal
import sys
from pathlib import Path

from agent_saga import AgentKit, Conflict, Landed, NotLanded, compensator

HERE = Path(__file__).parent
kit = AgentKit(HERE / "agent-saga.db")


def world() -> list[str]:
    file = HERE / "world"
    return file.read_text().splitlines() if file.exists() else []


def write(line: str) -> None:
    with (HERE / "world").open("a") as file:
        file.write(line + "\n")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def told(word: str) -> bool:
    """Whether the test put a file of this name beside the shop."""
    return (HERE / word).exists()


@compensator("shop.refund", idempotent=True)
def refund(charge_id: str) -> None:
    print("refunding", charge_id)  # Must not reach the command's stdout.
    if told("refund-fails"):
        raise RuntimeError("the bank\nis closed")
    if told("refund-conflicts"):
        raise Conflict(before=1, ours=2, now=3)
    if told("die-before-refund"):
        die()
    if f"refund {charge_id}" not in world():
        write(f"refund {charge_id}")
    if told("die-after-refund"):
        die()


@compensator("shop.stop", idempotent=True)
def stop(server: str) -> None:
    write(f"stop {server}")


@compensator("shop.unpack")
def unpack(box: str) -> None:
    """Neither idempotent nor verified: cut short, it is in doubt."""
    write(f"unpack {box}")
    if told("die-after-unpack"):
        die()


def find_charge(key, kwargs):
    line = f"charge {key}"
    return Landed({"id": key}) if line in world() else NotLanded()


@kit.tool(effect="compensable", compensate=refund.bind(charge_id="result.id"), probe=find_charge)
def charge(customer: str, amount: int, idempotency_key: str = "") -> dict:
    if told("die-before-charge"):
        die()
    write(f"charge {idempotency_key}")
    if told("die-after-charge"):
        die()
    return {"id": idempotency_key}


@kit.tool(effect="compensable", compensate=stop.bind(server="result"))
def launch(name: str) -> str:
    write(f"launch {name}")
    if told("die-after-launch"):
        die()
    return f"i-{name}"


@kit.tool(effect="compensable", compensate=unpack.bind(box="kwargs.box"))
def pack(box: str) -> None:
    write(f"pack {box}")


@kit.tool(effect="compensable", compensate=stop.bind(server="result.id"))
def shout(text: str) -> dict:
    """Returns nothing that its compensation could be bound from: an orphan at once."""
    write(f"shout {text}")
    return {}


@kit.tool(effect="irreversible")
def mail(to: str) -> None:
    write(f"mail {to}")


@kit.tool(effect="read_only")
def price(item: str) -> int:
    return 7


def order() -> None:
    price("book")
    charge("cus_1", 4200)
    launch("web")


def main(mode: str) -> None:
    with kit.transaction("checkout", key=f"order-{mode}", on_crash="resume" if mode == "resume" else "roll_back"):
        if mode == "pack":
            pack("b1")
        elif mode == "shout":
            shout("hello")
        order()
        if mode == "refused":
            mail("a@example.org")
        if mode == "live":
            print("ready", flush=True)
            sys.stdin.readline()
        if mode in {"die", "pack", "resume"}:
            die()
        if mode == "fail":
            raise RuntimeError("out of stock")


if __name__ == "__main__":
    main(sys.argv[1])

"""The world of the gate tests: a file with a line for each effect; tools, policies and kits that work on it."""

import json
import os
from decimal import Decimal
from pathlib import Path

from agent_saga import AgentKit, Allow, Ask, compensator
from agent_saga.model.requirements import Within

PLACE = "GATE_WORLD"
FIRST = []


def note(line):
    with Path(os.environ[PLACE]).open("a") as file:
        file.write(line + "\n")


def world():
    file = Path(os.environ[PLACE])
    return file.read_text().splitlines() if file.exists() else []


class Stop(Exception):
    """What a test raises inside a saga."""


@compensator("gate.refund", idempotent=True)
def refund(customer, amount):
    note(f"refund {customer} {amount}")


@compensator("gate.unpack", safe_if_absent=True, idempotent=True)
def unpack(box):
    note(f"unpack {box}")


def mail(to, body="", parts=None):
    note(f"mail {to} {json.dumps(parts)}")
    return "sent"


async def amail(to):
    note(f"amail {to}")


def charge(customer, amount):
    note(f"charge {customer} {amount}")
    return {"id": customer}


def declined(customer, amount):
    """Nothing happens."""
    raise ValueError("declined")


def vanish(customer, amount):
    """It happens, and nobody hears of it."""
    note(f"charge {customer} {amount}")
    raise TimeoutError("no answer")


def pack(box, amount, idempotency_key=""):
    """The first attempt fails."""
    FIRST.append(idempotency_key)
    if FIRST.count(idempotency_key) == 1:
        raise ConnectionRefusedError("try again")
    note(f"pack {box}")


def lift(box, other=""):
    note(f"lift {box}{other}")


class Purse:
    """Every call spends its `amount` from one budget."""

    def __init__(self, limit, name="purse"):
        self.limit, self.name = Decimal(limit), name

    def decide(self, call, saga):
        if "amount" not in call.kwargs:
            return Allow()
        return Allow((Within(budget=self.name, amount=Decimal(call.kwargs["amount"]), limit=self.limit),))


class Asks:
    """Every call needs a word."""

    def __init__(self, **question):
        self.question = question

    def decide(self, call, saga):
        return Ask(f"{call.tool} needs a word", **self.question)


class Says:
    """Every call gets this answer, or what this function returns."""

    def __init__(self, answer):
        self.answer = answer

    def decide(self, call, saga):
        return self.answer(call) if callable(self.answer) else self.answer


def make_kit(log, *policies, **options):
    kit = AgentKit(log, policies=policies, **options)
    pays = {"effect": "compensable", "compensate": refund.bind(customer="kwargs.customer", amount="kwargs.amount")}
    kit.mail = kit.wrap(mail, effect="irreversible")
    kit.amail = kit.wrap(amail, effect="irreversible")
    kit.charge = kit.wrap(charge, **pays)
    kit.declined = kit.wrap(declined, no_effect_on=[ValueError], **pays)
    kit.vanish = kit.wrap(vanish, **pays)
    kit.account = kit.wrap(charge, name="account", resources=["account:{customer}"], **pays)
    boxes = {"effect": "compensable", "compensate": unpack.bind(box="kwargs.box")}
    packs = refund.bind(customer="kwargs.box", amount="kwargs.amount")
    kit.pack = kit.wrap(pack, retry=1, effect="compensable", compensate=packs)
    kit.lift = kit.wrap(lift, resources=["box:{box}"], **boxes)
    kit.lift_both = kit.wrap(lift, name="lift_both", resources=["box:{box}", "box:{other}"], **boxes)
    return kit

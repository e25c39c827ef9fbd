"""What was redacted cannot be found again by trying all values against what is left. Rule ids: BF-n.

The attacker has every byte of the log's files (free pages and -wal included) and of what commands print, knows the
format, and knows every argument of the call but one of three digits.
"""

import base64
import hashlib
import itertools
import json
import re

import pytest

from agent_saga import AgentKit, Ask, compensator
from agent_saga.audit.redact import redact
from agent_saga.model.records import decode_body
from agent_saga.runtime.approval import call_digest
from agent_saga.store.open import open_log

CVV = "739"
ALL = [f"{number:03}" for number in range(1000)]


@compensator("brute.refund", idempotent=True)
def refund(card: str, cvv: str) -> None:
    """Nothing to do: the world of this test is its log."""


class AskFirst:
    """Asks, and quotes the argument."""

    def decide(self, call, _saga):
        return Ask(f"cvv {call.kwargs['cvv']} needs a word")


def files(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def attack(folder, log_path):
    """Return the values that any test confirms: as bytes, encoded, or by a hash with anything that lies around."""
    data = files(folder)
    words = {bytes.fromhex(found.decode()) for found in re.findall(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", data)}
    salts = [b"", *words, *(word.hex().encode() for word in words)]
    targets = {found for found in re.findall(rb"[0-9a-f]{64}", data)}
    found = set()
    for guess in ALL:
        texts = [guess.encode(), json.dumps(guess).encode(), guess.lstrip("0").encode() or b"0"]
        hashes = [hashlib.sha256(salt + text).hexdigest().encode() for salt, text in itertools.product(salts, texts)]
        if targets & set(hashes):
            found.add(guess)
    return found | approvals_confirm(log_path) | ({CVV} if quoted(data) else set())


def quoted(data):
    """Tell whether the value itself is there, where it stands alone or as base64."""
    alone = rb'(?:"|\\"|\'|\b)cvv(?:"|\\"|\')?[:= ]+(?:"|\\"|\')?739'
    return bool(re.search(alone, data)) or b'"739"' in data or base64.b64encode(b'"739"')[:-1] in data


def approvals_confirm(log_path):
    """Try every value in the digest of every request for approval, as its definition says."""
    store = open_log(str(log_path), create=False)
    found = set()
    try:
        for stored in store.tail(limit=1000):
            record = decode_body(stored.body)
            if type(record).__name__ != "ApprovalRequested" or stored.payload is None:
                continue
            entries = {name: text for name, (_, text) in json.loads(stored.payload).items()}
            nonce = json.loads(entries.pop("nonce"))
            kwargs = {name.removeprefix("kwargs."): text for name, text in entries.items()}
            for guess in ALL:
                texts = {**kwargs, "cvv": json.dumps(guess)}
                tried = call_digest(record, texts, nonce if isinstance(nonce, str) else "")
                found |= {guess} if tried == record.digest else set()
    finally:
        store.close()
    return found


def shop(tmp_path, **options):
    kit = AgentKit(
        log=tmp_path / "log" / "log.db", secrets="ignore", approver=lambda _call: True, policies=[AskFirst()]
    )

    def charge(card: str, cvv: str) -> dict[str, str]:
        if card == "declined":
            raise ValueError(f"card {card} with cvv {cvv} was declined: {cvv!r}")
        return {"id": "ch_1"}

    bound = refund.bind(card="kwargs.card", cvv="kwargs.cvv")
    return kit, kit.wrap(charge, effect="compensable", compensate=bound, **options)


def run(kit, charge):
    ids = []
    with kit.transaction("good", key="good") as saga:
        charge(card="4000", cvv=CVV)
        ids.append(saga.id)
    with pytest.raises(ValueError, match=CVV), kit.transaction("bad") as saga:
        charge(card="4000", cvv=CVV)
        ids.append(saga.id)
        charge(card="declined", cvv=CVV)
    kit.close()
    return ids


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def test_the_attack_finds_what_is_not_redacted(tmp_path, folder):
    """BF-1: an attack that cannot succeed shows nothing."""
    run(*shop(tmp_path))
    assert attack(folder, folder / "log.db") == {CVV}
    assert approvals_confirm(folder / "log.db") == {CVV}


def test_what_a_declaration_redacts_never_reaches_the_log(tmp_path, folder):
    """BF-2: not as a value, a commitment, a digest, in a message, a cause or the reason of a decision."""
    run(*shop(tmp_path, redact=["cvv"]))
    assert attack(folder, folder / "log.db") == set()


def test_what_is_redacted_later_cannot_be_guessed(tmp_path, folder):
    """BF-3: texts, salts and the nonces of approvals are gone from every page and from the -wal."""
    ids = run(*shop(tmp_path))
    store = open_log(str(folder / "log.db"), create=False)
    for saga_id in ids:
        for path in ("kwargs.cvv", "compensation.cvv", "error"):
            redact(store, saga_id, path, by="tester")
    store.close()
    assert approvals_confirm(folder / "log.db") == set()
    # What a policy's reason or an exception's text quotes is in bodies: only `redact=` of the declaration keeps it out.
    assert b'"739"' not in files(folder)


def test_a_resource_may_not_show_a_redacted_argument(tmp_path, folder):
    """BF-4: names are stored for everybody to compare."""
    with pytest.raises(Exception, match="redact= keeps out"):
        shop(tmp_path, redact=["cvv"], resources=["card:{card}:{cvv}"])

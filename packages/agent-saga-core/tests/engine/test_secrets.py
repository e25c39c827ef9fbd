"""Secrets are noticed before they are stored in plain text; what only looks random is left alone. Rule ids: SC-n.

No text here is a real key: each is put together when the test runs, so that scanners of sources find none.
"""

import base64
import hashlib
import json
import random
import string
import uuid
import warnings

import pytest

from agent_saga import AgentKit, GateRefused, KeyRing
from agent_saga.errors import DeclarationError, UsageError
from agent_saga.model.secrets import is_secret_name, secret_in
from agent_saga.runtime.secrets import SecretInLog

chance = random.Random(7)


def some(length, letters=string.ascii_letters + string.digits):
    return "".join(chance.choices(letters, k=length))


SECRETS = {
    "an AWS access key": "AKIA" + some(16, string.ascii_uppercase + string.digits),
    "a Stripe key": "sk_" + "live_" + some(24),
    "a GitHub token": "gh" + "p_" + some(36),
    "a GitLab token": "gl" + "pat-" + some(20),
    "a Slack token": "xo" + "xb-" + some(24),
    "a Google API key": "AI" + "za" + some(35),
    "a key of a model's provider": "sk" + "-ant-" + some(40),
    "an npm token": "np" + "m_" + some(36),
    "a JSON Web Token": ".".join(("ey" + "J" + some(20), "ey" + "J" + some(40), some(43))),
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----\\n" + some(64),
    "a bearer token": "Authorization is Bea" + "rer " + some(24),
    "a URL with a password": "postgresql://app:" + some(12) + "@db/shop",
    "a long random text, like a key": some(40) + "+9aZ",
}
PLAIN = [
    "", "ok", "cus_1", "card ending 4242", "https://example.com/orders/1?next=2", "mailto:ann@example.com",
    *(str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(200)),
    *(hashlib.new(kind, bytes([n])).hexdigest() for kind in ("md5", "sha1", "sha256", "sha512") for n in range(100)),
    *(base64.b64encode(hashlib.sha256(bytes([n])).digest()).decode() for n in range(200)),
    *("sha256:" + hashlib.sha256(bytes([n])).hexdigest() for n in range(20)),
    *(base64.b64encode(chance.randbytes(length)).decode() for length in (90, 300, 5000) for _ in range(30)),
    *("data:image/png;base64," + base64.b64encode(chance.randbytes(400)).decode() for _ in range(30)),
    *("01" + some(24, "0123456789abcdefghjkmnpqrstvwxyz") for _ in range(100)),
    *("ch_" + some(24) for _ in range(100)), *("cs_" + some(28) for _ in range(50)),
    "a/long/path/that/has/many/parts/and/Some/Numbers/2026/Report.pdf",
    "some_very_long_identifier_in_code_with_Words_1",
    "The quick brown fox jumps over the lazy dog, and the token was max_tokens=1024 in page 7",
]  # fmt: skip


@pytest.mark.parametrize("kind", SECRETS)
def test_each_kind_of_secret_is_recognised_and_never_told(kind):
    """SC-1: also inside of structures; the answer has the place and the kind, not the text."""
    for value in (SECRETS[kind], {"deep": [1, {"x": SECRETS[kind]}]}):
        found = secret_in("kwargs.x", json.dumps(value).replace(": ", ":").replace("\\\\n", "\\n"))
        assert found == ("kwargs.x", kind)


def test_what_only_looks_random_is_left_alone():
    """SC-2: UUIDs, digests, commit ids, images, identifiers, paths, prose."""
    flagged = [text for text in PLAIN if secret_in("kwargs.x", json.dumps(text)) is not None]
    assert flagged == []


def test_names_of_secrets_and_names_that_are_none():
    """SC-3."""
    secret = "api_key apiKey APIKEY db_password token auth_token accessToken Authorization client_secret cvv"
    public = "max_tokens tokens next_page_token page_token token_count monkey key keyboard idempotency_key author"
    assert [name for name in secret.split() if not is_secret_name(name)] == []
    assert [name for name in public.split() if is_secret_name(name)] == []
    assert secret_in("kwargs.headers", '{"X":"1","Authorization":"Basic abcd"}') == (
        "kwargs.headers.Authorization",
        "a value under the name of a secret",
    )


def test_a_declaration_is_warned_about_refused_or_left_alone(tmp_path):
    """SC-4: redact= and encryption settle it."""

    def pay(card: str, api_key: str) -> None: ...

    kit = AgentKit(log=tmp_path / "log.db")
    with pytest.warns(SecretInLog, match="'api_key' is named like a secret"):
        kit.wrap(pay, effect="reversible")
    with pytest.raises(DeclarationError, match="redact=\\['api_key'\\]"):
        AgentKit(log=tmp_path / "log.db", secrets="refuse").wrap(pay, effect="reversible")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kit.wrap(pay, effect="reversible", redact=["api_key"])
        AgentKit(log=tmp_path / "log.db", secrets="ignore").wrap(pay, effect="reversible")
        AgentKit(log=tmp_path / "e.db", encryption=KeyRing({"k": bytes(32)})).wrap(pay, effect="reversible")
        AgentKit(log="memory:").wrap(pay, effect="reversible")
    with pytest.raises(UsageError, match="secrets='maybe'"):
        AgentKit(log=tmp_path / "log.db", secrets="maybe")


def test_a_call_is_warned_about_once_and_the_value_is_not_shown(tmp_path):
    """SC-5: with tool and path, before the call is recorded."""
    kit = AgentKit(log=tmp_path / "log.db", approver=lambda _call: True)
    call = kit.wrap(lambda headers: None, effect="irreversible", name="call")
    secret = SECRETS["a GitHub token"]
    with pytest.warns(SecretInLog) as told, kit.transaction("t"):
        call(headers={"x": secret})
        call(headers={"x": secret + "1"})
    kit.close()
    (one,) = told
    assert "tool 'call': kwargs.headers holds what looks like a GitHub token" in str(one.message)
    assert secret not in str(one.message)


def test_a_call_can_be_refused_before_its_effect(tmp_path):
    """SC-6: the refusal is recorded, the value is not."""
    ran = []
    kit = AgentKit(log=tmp_path / "log" / "log.db", secrets="refuse", approver=lambda _call: True)
    (tmp_path / "log").mkdir()
    call = kit.wrap(lambda text: ran.append(text), effect="irreversible", name="call")
    secret = SECRETS["an AWS access key"]
    with kit.transaction("t"), pytest.raises(GateRefused, match="kwargs.text holds what looks like an AWS access key"):
        call(text=f"use {secret}")
    kit.close()
    assert ran == []
    assert not any(secret.encode() in path.read_bytes() for path in (tmp_path / "log").iterdir() if path.is_file())

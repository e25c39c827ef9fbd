"""Ed25519 words on approvals: over the digest of the exact call, by keys that the operator registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agent_saga.errors import UsageError
from agent_saga.store.reader import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent_saga.machine.gate import ApprovalView
    from agent_saga.store.port import LogStore

_KEY_DIGITS: Final = 64


def message(approval: str, digest: str, decision: str, by: str) -> bytes:
    """Return the bytes that a word signs."""
    return b"\0".join(part.encode() for part in ("agent-saga/word/1", approval, digest, decision, by))


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise UsageError("signed approvals need the extra [keys]: pip install 'agent-saga-core[keys]'") from error
    return ed25519


def make_key() -> tuple[str, str]:
    """Return a new private key and its public key, both as hex."""
    private = _ed25519().Ed25519PrivateKey.generate()
    return private.private_bytes_raw().hex(), private.public_key().public_bytes_raw().hex()


def public_of(private_hex: str) -> str:
    """Return the public key of a private one, as hex.

    Raises:
        UsageError: it is no Ed25519 private key.
    """
    try:
        private = _ed25519().Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private_hex.strip()))
    except ValueError as error:
        raise UsageError(f"this is no Ed25519 private key: {error}") from None
    return str(private.public_key().public_bytes_raw().hex())


def sign(private_hex: str, data: bytes) -> str:
    """Return the signature over `data` as hex.

    Raises:
        UsageError: it is no Ed25519 private key.
    """
    try:
        private = _ed25519().Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private_hex.strip()))
    except ValueError as error:
        raise UsageError(f"this is no Ed25519 private key: {error}") from None
    return str(private.sign(data).hex())


def pinned(keys: Mapping[str, str | Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Return the public keys that a kit was given, checked.

    Raises:
        UsageError: one is no Ed25519 public key in hex.
    """
    return {
        name: tuple(map(check_public_key, [given] if isinstance(given, str) else given)) for name, given in keys.items()
    }


def valid_principals(
    store: LogStore, known: ApprovalView, keys: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[set[str], str]:
    """Return the principals whose approval is signed by a key of theirs, and what is wrong with the others.

    Args:
        store: the log.
        known: the request.
        keys: by principal; None: those that the log registers.
    """
    good: set[str] = set()
    problem = "no signature"
    for word in known.decided:
        if word.decision != "approved":
            continue
        theirs = registered(store, word.by) if keys is None else keys.get(word.by, ())
        reason = _flaw(known, word.by, word.signature, theirs)
        if reason is None:
            good.add(word.by)
        else:
            problem = f"{word.by}: {reason}"
    return good, problem


def _flaw(known: ApprovalView, by: str, signature: str | None, keys: Iterable[str]) -> str | None:
    if signature is None:
        return "not signed"
    if not keys:
        return "no key is registered"
    data = message(known.id, known.request.digest, "approved", by)
    return None if any(_verifies(key, signature, data) for key in keys) else "the signature is not good"


def registered(store: LogStore, principal: str) -> list[str]:
    """Return the public keys of a principal, from the records: a row of the facts table alone registers nothing.

    Raises:
        CorruptLog: the records that a fact leads to are damaged.
    """
    keys = []
    for fact in store.facts("key", principal):
        loaded = load(store, fact.saga_id)
        gate = None if loaded is None else loaded.view.gate
        action = None if gate is None or gate.lifted else gate.action
        if action is not None and (action.action, action.scope) == ("key_added", principal) and action.data:
            keys.append(action.data)
    return keys


def check_public_key(text: str) -> str:
    """Return a public key as the log holds it.

    Raises:
        UsageError: it is no Ed25519 public key in hex.
    """
    key = text.strip().lower()
    if len(key) != _KEY_DIGITS or not all(digit in "0123456789abcdef" for digit in key):
        raise UsageError(f"this is no Ed25519 public key: {_KEY_DIGITS} hex digits are needed")
    return key


def _verifies(key: str, signature: str, data: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        _ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):
        return False
    return True

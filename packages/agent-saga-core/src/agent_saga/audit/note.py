"""Signed notes and checkpoints: a root that can be kept, published and cosigned outside of the log.

Source:
    https://c2sp.org/signed-note and https://c2sp.org/tlog-checkpoint, with Ed25519 signatures (algorithm 0x01).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

from agent_saga.errors import BadEvidence, UsageError

_ED25519: Final = b"\x01"
_TAIL: Final = re.compile(r"agent-saga-tail ([1-9][0-9]{0,18}) ([0-9a-f]{64})")
_NAME: Final = re.compile(r"[^\s+]{1,200}")
_SIGNATURES_MAX: Final = 100
_ID_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a log was at some time.

    Attributes:
        origin: names the log: `agent-saga/<id of the log>`.
        size: leaves (sealed sagas) of its tree.
        root: the tree's root.
        tail: position and hash of its last record then, or None; an extension line of ours, which others pass over.
    """

    origin: str
    size: int
    root: bytes
    tail: tuple[int, bytes] | None = None

    def text(self) -> str:
        """Return the text that is signed."""
        lines = [self.origin, str(self.size), base64.b64encode(self.root).decode()]
        if self.tail is not None:
            lines.append(f"agent-saga-tail {self.tail[0]} {self.tail[1].hex()}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """A public key with the name under which it signs.

    Attributes:
        public: the Ed25519 key, 32 bytes.
    """

    name: str
    public: bytes

    @property
    def key_id(self) -> bytes:
        """The four bytes by which a signature says which key made it."""
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.public).digest()[:_ID_BYTES]

    def text(self) -> str:
        """Return the key as `<name>+<key id>+<base64>`, the form that verifiers of signed notes take."""
        return f"{self.name}+{self.key_id.hex()}+{base64.b64encode(_ED25519 + self.public).decode()}"


def verifier_key(text: str) -> Verifier:
    """Return the public key that a text in the form of `Verifier.text` holds.

    Raises:
        UsageError: it is no such text.
    """
    name, _, rest = text.strip().partition("+")
    digits, _, encoded = rest.partition("+")
    try:
        key = base64.b64decode(encoded, validate=True)
        verifier = Verifier(name=_checked_name(name), public=key[1:])
    except binascii.Error as error:
        raise UsageError(f"this is no verifier key (<name>+<8 hex digits>+<base64>): {error}") from None
    if key[:1] != _ED25519 or len(verifier.public) != 32 or verifier.key_id.hex() != digits:  # noqa: PLR2004
        raise UsageError("this is no Ed25519 verifier key (<name>+<8 hex digits>+<base64>), or it was mistyped")
    return verifier


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a key: 1 to 200 characters without spaces and +")
    return name


def verifier_of(name: str, private_hex: str) -> Verifier:
    """Return the public key of a private one (as `agent-saga keys new` makes it), under a name.

    Raises:
        UsageError: it is no Ed25519 private key, or the extra [keys] is missing.
    """
    from agent_saga.runtime.signatures import public_of

    return Verifier(name=_checked_name(name), public=bytes.fromhex(public_of(private_hex)))


def sign(text: str, name: str, private_hex: str) -> str:
    """Return a text as a signed note.

    Args:
        text: ends with a newline.
        name: of the key.
        private_hex: the key.

    Raises:
        UsageError: as `verifier_of`.
    """
    from agent_saga.runtime.signatures import sign as sign_bytes

    verifier = verifier_of(name, private_hex)
    signature = verifier.key_id + bytes.fromhex(sign_bytes(private_hex, text.encode()))
    return f"{text}\n\N{EM DASH} {name} {base64.b64encode(signature).decode()}\n"


def open_note(note: str, verifier: Verifier) -> str:
    """Return the text of a note that `verifier` has signed; signatures of others are passed over.

    Raises:
        UsageError: it is no note.
        BadEvidence: it is not signed by that key.
    """
    text, separator, signatures = note.rpartition("\n\n")
    lines = signatures.splitlines()
    if not separator or not 1 <= len(lines) <= _SIGNATURES_MAX or not signatures.endswith("\n"):
        raise UsageError("this is no signed note: a text, an empty line, and lines with signatures are needed")
    for line in lines:
        dash, name, encoded = [*line.split(" "), "", ""][:3]
        if (dash, name) == ("\N{EM DASH}", verifier.name) and _signed(text + "\n", encoded, verifier):
            return text + "\n"
    raise BadEvidence(f"the note has no good signature by {verifier.name}: it was changed, or signed by another key")


def _signed(text: str, encoded: str, verifier: Verifier) -> bool:
    try:
        signature = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return False
    key, signature = signature[:_ID_BYTES], signature[_ID_BYTES:]
    return key == verifier.key_id and _verifies(verifier.public, signature, text.encode())


def _verifies(public: bytes, signature: bytes, data: bytes) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise UsageError("signed checkpoints need the extra [keys]: pip install 'agent-saga-core[keys]'") from error
    key: Any = ed25519.Ed25519PublicKey.from_public_bytes(public)
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def parse_checkpoint(text: str) -> Checkpoint:
    """Return the checkpoint that a text holds; the text of a signed note or an unsigned one.

    Raises:
        UsageError: it is none.
    """
    lines = text.partition("\n\n")[0].rstrip("\n").split("\n")
    try:
        origin, size, root, *extensions = lines
        parsed = Checkpoint(
            origin=origin,
            size=int(size) if re.fullmatch(r"0|[1-9][0-9]{0,18}", size) else -1,
            root=base64.b64decode(root, validate=True),
            tail=_tail(extensions),
        )
    except ValueError:
        parsed = None
    if parsed is None or not parsed.origin or parsed.size < 0 or len(parsed.root) != hashlib.sha256().digest_size:
        raise UsageError("this is no checkpoint: origin, number of leaves and root (base64) are needed, a line each")
    return parsed


def _tail(extensions: list[str]) -> tuple[int, bytes] | None:
    found = [match for line in extensions if (match := _TAIL.fullmatch(line))]
    return (int(found[0][1]), bytes.fromhex(found[0][2])) if len(found) == 1 else None

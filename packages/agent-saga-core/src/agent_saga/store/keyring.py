"""Key rings: the keys that wrap the data keys of sagas. A log holds wrapped data keys; a ring never goes into it."""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_BYTES: Final = 32
_RING_BYTES_MAX: Final = 1 << 16
_ID: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")


class KeyRing:
    """Keys by id, one of which wraps the data keys of new sagas; the others open what was wrapped before.

    A subclass may keep its keys elsewhere (a key management service): it overrides `current`, `wrap` and `unwrap`.

    Args:
        keys: 32 bytes by key id. An id is printed and stored in the log; it is no secret.
        current: the id of the key that wraps; by default the last one.

    Raises:
        UsageError: there is no key, or one of them or its id cannot be used.
    """

    def __init__(self, keys: Mapping[str, bytes], *, current: str | None = None) -> None:
        for key_id, key in keys.items():
            check_key_id(key_id)
            if not isinstance(key, bytes) or len(key) != KEY_BYTES:
                raise UsageError(f"key {key_id!r} of the key ring must be {KEY_BYTES} bytes")
        if not keys:
            raise UsageError("a key ring needs a key")
        self._keys = dict(keys)
        self._current = current if current is not None else list(keys)[-1]
        if self._current not in self._keys:
            raise UsageError(f"the key ring has no key {self._current!r}, which it names as the current one")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> KeyRing:
        """Return the ring in a file: a line `<key id> <base64 of 32 bytes>` for each key, the current one last.

        Raises:
            UsageError: the file cannot be read, others than its owner may read or write it, or a line is no key. No
                message shows what the file holds.
        """
        place = Path(path)
        try:
            with place.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                content = file.read(_RING_BYTES_MAX + 1)
        except OSError as error:
            raise UsageError(f"the key ring {place} cannot be read: {error.strerror}") from error
        if os.name == "posix" and mode & 0o077:
            raise UsageError(f"others may read or write the key ring {place}: chmod 600 {place}")
        keys: dict[str, bytes] = {}
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            key_id, _, text = line.strip().partition(" ")
            try:
                key = base64.b64decode(text.strip(), validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if len(content) > _RING_BYTES_MAX or len(key) != KEY_BYTES or not _ID.fullmatch(key_id) or key_id in keys:
                raise UsageError(
                    f"line {number} of the key ring {place} is not `<key id> <base64 of {KEY_BYTES} bytes>` with an id "
                    "of its own"
                )
            keys[key_id] = key
        if not keys:
            raise UsageError(f"the key ring {place} holds no key: agent-saga key-ring add {place}")
        return cls(keys)

    @property
    def current(self) -> str:
        """The id of the key that wraps the data keys of new sagas."""
        return self._current

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its keys."""
        return tuple(self._keys)

    def wrap(self, data_key: bytes) -> bytes:
        """Return a data key (32 bytes) wrapped by the current key.

        AES key wrap is deterministic and takes no nonce, so that nothing can be used twice under a key of the ring.

        Source: RFC 3394.
        """
        from cryptography.hazmat.primitives.keywrap import aes_key_wrap

        return aes_key_wrap(self._keys[self._current], data_key)

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes | None:
        """Return a data key; None when the ring has no key of this id, or another one that does not open it."""
        from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap

        key = self._keys.get(key_id)
        if key is None:
            return None
        try:
            return aes_key_unwrap(key, wrapped)
        except (InvalidUnwrap, ValueError):
            return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyRing):
            return NotImplemented
        return self is other or (self._keys, self._current) == (other._keys, other._current)

    def __hash__(self) -> int:
        return hash((type(self), self._current))

    def __repr__(self) -> str:
        return f"<KeyRing of {', '.join(self._keys)}; current {self._current}>"


def check_key_id(key_id: str) -> None:
    """Raise when a key cannot have this id."""
    if not isinstance(key_id, str) or not _ID.fullmatch(key_id):
        raise UsageError(f"{key_id!r} is no id of a key: letters, digits and _ . : / - only, at most 200")


def add_key(path: Path, key_id: str) -> None:
    """Add a new random key to the ring in a file, as the current one; make the file when there is none.

    Raises:
        UsageError: it cannot be written, or has a key of this id.
    """
    check_key_id(key_id)
    if path.exists() and key_id in KeyRing.from_file(path).ids:
        raise UsageError(f"the key ring {path} has a key {key_id!r} already")
    line = f"{key_id} {base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}\n"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "ab") as file:
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                line = "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(f"the key ring {path} cannot be written: {error.strerror}") from error

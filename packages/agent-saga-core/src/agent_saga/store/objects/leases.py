"""Owners: one object per process, renewed by it, and marked by whoever proves its death.

The age of a lease is told by the store's clock where it tells one, else by how long this process has seen it as it is.
A proof is a compare-and-set on the lease: the owner cannot renew what somebody else has marked, and waits until the
mark is gone. Safety does not hang on any of this: who was claimed from is stale by its epoch.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from agent_saga.errors import LogFailed
from agent_saga.store.objects.sink import SinkLost, SinkRefused

if TYPE_CHECKING:
    from agent_saga.store.objects.link import Link
    from agent_saga.store.objects.sink import Found

_TOKEN: Final = re.compile(r"[0-9a-z]+(-[0-9a-z]+)*")
_CLOCK_STEP_S: Final = 1.0
"""The store's clock may count whole seconds: so much younger may a lease be than it says."""
_BEATS: Final = 3
_PAUSE_S: Final = 0.02


class Lease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An owner's object.

    Attributes:
        ttl_s: how long it counts after it was written; 0 once its owner was seen dead.
        beat: counts renewals, so that no two versions are equal.
        prover: who holds a proof of the owner's death, which counts for `prover_ttl_s` after it was written.
        gone: it owns nothing any more.
    """

    ttl_s: float
    beat: str
    prover: str | None = None
    prover_ttl_s: float = 0.0
    gone: bool = False


def _name(token: str) -> str:
    return f"owners/{token}"


def _decoded(found: Found) -> Lease:
    try:
        return msgspec.json.decode(found.data, type=Lease)
    except msgspec.MsgspecError as error:
        raise LogFailed(f"an owner's lease cannot be read: {error}") from error


class Leases:
    """This process's lease, and the proofs of others' deaths."""

    def __init__(self, link: Link, *, ttl_s: float) -> None:
        self._link, self._ttl_s = link, ttl_s
        self.token: str | None = None
        self._etag: str | None = None
        self._renewed_at = 0.0
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: dict[str, tuple[str, float]] = {}

    def publish(self) -> str:
        """Return this process's token; the first call publishes its lease.

        Raises:
            LogFailed: that failed.
        """
        with self._lock:
            if self.token is None:
                token = f"{os.getpid()}-{secrets.token_hex(8)}"
                began = time.monotonic()
                self._etag = self._write(token, self._fresh(), None)
                if self._etag is None:
                    raise LogFailed(f"the owner {token!r} exists already")
                self.token, self._renewed_at = token, began
                self._thread = threading.Thread(target=self._run, name="agent-saga-lease", daemon=True)
                with contextlib.suppress(RuntimeError):  # A host without threads renews with its appends.
                    self._thread.start()
            return self.token

    def _fresh(self) -> Lease:
        return Lease(ttl_s=self._ttl_s, beat=secrets.token_hex(8))

    def _write(self, token: str, lease: Lease, expected: str | None) -> str | None:
        try:
            return self._link.replace(_name(token), msgspec.json.encode(lease), expected=expected)
        except (SinkLost, SinkRefused) as error:
            raise LogFailed(f"an owner's lease cannot be written: {error}") from error

    def _read(self, token: str) -> Found | None:
        try:
            return self._link.read(_name(token))
        except (SinkLost, SinkRefused) as error:
            raise LogFailed(f"cannot tell whether owner {token!r} lives: {error}") from error

    def check(self) -> None:
        """Renew a lease that has run out before something is appended; waits while somebody proves its death.

        Raises:
            LogFailed: this process was taken for dead for good.
        """
        if self.token is not None and time.monotonic() - self._renewed_at > self._ttl_s / 2:
            self._renew()

    def _renew(self) -> None:
        with self._lock:
            until = time.monotonic() + self._link.wait_s
            while self.token is not None:
                began = time.monotonic()
                etag = self._write(self.token, self._fresh(), self._etag)
                if etag is not None:
                    self._etag, self._renewed_at = etag, began
                    return
                found = self._read(self.token)
                lease = None if found is None else _decoded(found)
                if found is None or lease is None or lease.gone:
                    raise LogFailed(
                        "the lease of this process has ended, and another process has taken it for dead: it may append "
                        "nothing more"
                    )
                if lease.prover is None or self._age(self.token, found) > lease.prover_ttl_s:
                    self._etag = found.etag
                elif time.monotonic() > until:
                    raise LogFailed("another process proves the death of this one, and does not come to an end")
                else:
                    self._stop.wait(_PAUSE_S)

    def _run(self) -> None:
        while not self._stop.wait(self._ttl_s / _BEATS):
            with contextlib.suppress(LogFailed):  # The next append says so, if it is still true then.
                self._renew()

    def _age(self, token: str, found: Found) -> float:
        if found.age_s is not None:
            return found.age_s - _CLOCK_STEP_S
        now = time.monotonic()
        etag, since = self._seen.get(token, ("", now))
        if etag != found.etag:
            since = now
        self._seen[token] = (found.etag, since)
        return now - since

    def prove_dead(self, owner: str) -> DeadLease | None:
        """See LogStore.prove_dead.

        Where the store tells no ages, the first call for an owner begins to watch it, and a later one can tell.
        """
        if owner == self.token or _TOKEN.fullmatch(owner) is None:
            return None
        found = self._read(owner)
        lease = Lease(ttl_s=0.0, beat="", gone=True) if found is None else _decoded(found)
        if found is not None:
            age = self._age(owner, found)
            counts_s = max(lease.prover_ttl_s if lease.prover is not None else 0.0, 0.0 if lease.gone else lease.ttl_s)
            if counts_s and age <= counts_s:
                return None
        prover = secrets.token_hex(8)
        marked = Lease(ttl_s=0.0, beat=prover, prover=prover, prover_ttl_s=self._ttl_s, gone=lease.gone)
        etag = self._write(owner, marked, None if found is None else found.etag)
        return None if etag is None else DeadLease(self, owner, marked, etag)

    def end_proof(self, owner: str, lease: Lease, etag: str) -> None:
        """Write what a proof leaves; one that was taken over meanwhile is left alone."""
        with contextlib.suppress(LogFailed):  # Then the mark runs out by itself.
            self._write(owner, lease, etag)

    def close(self) -> None:
        """Give the lease back: this process owns nothing any more."""
        self._stop.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        with self._lock:
            if self.token is not None:
                with contextlib.suppress(LogFailed):  # It runs out by itself.
                    self._write(self.token, Lease(ttl_s=0.0, beat=secrets.token_hex(8), gone=True), self._etag)
                self.token = None


class DeadLease:
    """See DeadOwner: the marked lease of a dead owner. Its owner does not renew it meanwhile."""

    def __init__(self, leases: Leases, owner: str, lease: Lease, etag: str) -> None:
        self._leases, self._owner, self._lease = leases, owner, lease
        self._etag: str | None = etag

    def forget(self) -> None:
        """See DeadOwner.forget."""
        self._end(gone=True)

    def close(self) -> None:
        """See DeadOwner.close."""
        self._end(gone=self._lease.gone)

    def _end(self, *, gone: bool) -> None:
        etag, self._etag = self._etag, None
        if etag is not None:
            left = Lease(ttl_s=0.0, beat=secrets.token_hex(8), gone=gone)
            self._leases.end_proof(self._owner, left, etag)

"""Owners on many machines: a lease in the log's own database, aged by the database's clock.

A process that writes has a row in `owners`, and a thread with a connection of its own that renews it, so that neither a
busy event loop nor a slow commit lets it run out. An append checks the lease in its own transaction. So a process that
was paused for longer than its lease cannot append before it has renewed it, and it cannot renew it while somebody
holds the proof of its death; what was claimed meanwhile is stale for it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import secrets
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from agent_saga.errors import LogFailed
from agent_saga_postgres.link import PAUSE_S, Gone, Refused, pause
from agent_saga_postgres.writer import channel_of

if TYPE_CHECKING:
    from agent_saga_postgres.link import Link, Server
    from agent_saga_postgres.schema import Found

_TOKEN: Final = re.compile(r"[0-9a-z]+(-[0-9a-z]+)*")
_KEPT_S: Final = 86_400.0
"""Rows of dead owners are removed so long after the end of their lease; a missing row means dead, too."""
_IDLE_LINKS_MAX: Final = 4
_ANSWER_S_MIN: Final = 2.0
"""A renewal waits for its answer for a third of the lease, and at least so long: a new connection is no faster."""
_PUBLISH: Final = (
    "INSERT INTO owners(token, host, pid, ttl_s, since, expires_at) VALUES($1, $2, $3::bigint, $4::double precision, "
    "clock_timestamp(), clock_timestamp() + make_interval(secs => $4::double precision)) "
    "ON CONFLICT (token) DO UPDATE SET expires_at = excluded.expires_at"  # The answer was lost, and it runs again.
)
_RENEW: Final = (
    "UPDATE owners SET expires_at = clock_timestamp() + make_interval(secs => ttl_s) WHERE token = $1 RETURNING token"
)
_GIVE_BACK: Final = (
    "DELETE FROM owners WHERE token = $1 "
    "OR expires_at < clock_timestamp() - make_interval(secs => $2::double precision)"
)
_STAND_IN: Final = (
    "INSERT INTO owners(token, host, pid, ttl_s, since, expires_at) VALUES($1, '', 0, 0, clock_timestamp(), "
    "'-infinity') ON CONFLICT (token) DO NOTHING"
)
_PROVE: Final = (
    "SELECT token FROM owners WHERE token = $1 AND expires_at <= clock_timestamp() "
    # A server that was down took no renewals: after its start everybody has the time of a lease to come back.
    "AND pg_postmaster_start_time() <= clock_timestamp() - make_interval(secs => ttl_s) FOR UPDATE SKIP LOCKED"
)
_FORGET: Final = "DELETE FROM owners WHERE token = $1"


class Keeper:
    """Keeps this process's lease alive, and hears what other processes append."""

    def __init__(self, server: Server, found: Found) -> None:
        self._server, self._target, self._found = server, server.target, found
        self.token: str | None = None
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._waiting: dict[str, concurrent.futures.Future[None]] = {}
        self._listens = False
        self._stop = False
        self._renew_at = 0.0
        self._bell, self._ear = socket.socketpair()
        self._thread: threading.Thread | None = None

    def publish(self) -> str:
        """Return this process's token; the first call publishes its lease.

        Raises:
            LogFailed: it could not be published.
        """
        with self._lock:
            if self.token is None:
                token = f"{os.getpid()}-{secrets.token_hex(8)}"
                try:
                    self._server.patiently(lambda: self._insert(token))
                except (Gone, Refused) as error:
                    raise LogFailed(
                        f"the owner's lease cannot be published in {self._target.location}: {error}"
                    ) from error
                self.token, self._renew_at = token, time.monotonic() + self._target.lease_ttl_s / 3
                self._start()
            return self.token

    def _insert(self, token: str) -> None:
        link = self._linked()
        link.run(_PUBLISH, token, socket.gethostname(), os.getpid(), self._target.lease_ttl_s)
        link.run("SELECT flush($1)", self._found.level)  # A missing row means dead.

    def renew(self) -> None:
        """Renew a lease that has run out, waiting for whoever is about to claim what this process owned.

        Raises:
            LogFailed: it could not be renewed in time.
        """
        until = time.monotonic() + self._target.wait_s
        while True:
            try:
                with self._lock:
                    self._renew()
                return
            except (Gone, Refused) as error:
                if time.monotonic() >= until:
                    raise LogFailed(f"the owner's lease in {self._target.location} has ended: {error}") from error
                pause(until)

    def news(self, about: str) -> concurrent.futures.Future[None]:
        """Return a future that is done when this saga may have been amended since this call."""
        with self._lock:
            future = self._waiting.get(about)
            if future is None or future.done():
                future = self._waiting[about] = concurrent.futures.Future()
            if self._stop:
                self._tell()
            self._start()
        self._ring()
        return future

    def close(self) -> None:
        """Stop, and give the lease back: this process owns nothing any more."""
        with self._lock:
            self._stop = True
            thread = self._thread
        self._ring()
        if thread is not None:
            thread.join()
        with contextlib.suppress(Gone, Refused):  # It runs out by itself.
            if self.token is not None:
                self._linked().run(_GIVE_BACK, self.token, _KEPT_S)
        self.token = None
        if self._link is not None:
            self._link.close()
        self._bell.close()
        self._ear.close()

    def inherited(self) -> object:
        """Return what a forked child must keep referenced, and never close."""
        return self._link, self._bell, self._ear, self._thread

    # -- the thread -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is None and not self._stop:
            self._thread = threading.Thread(target=self._run, name="agent-saga-lease", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                with self._lock:
                    if self._stop:
                        self._tell()
                        return
                    link = self._linked()
                    self._listen(link)
                    if self.token is not None and time.monotonic() >= self._renew_at:
                        self._renew()
                    if self._listens:
                        self._tell(link.notified())
                self._sleep(link)
            except (Gone, Refused):  # The next append says so, if it is still true then.
                self._listens = False
                time.sleep(PAUSE_S)

    def _linked(self) -> Link:
        """Return the connection. INVARIANT: the caller holds the lock, or there is no thread any more."""
        if self._link is None or not self._link.open:
            self._listens = False
            answer_s = min(max(self._target.lease_ttl_s / 3, _ANSWER_S_MIN), self._target.wait_s)
            self._link = self._server.connect(answer_s=answer_s)
        return self._link

    def _renew(self) -> None:
        if self.token is not None:
            # A lease that is gone for good is found by the next append, which says what that means.
            self._linked().run(_RENEW, self.token)
            self._renew_at = time.monotonic() + self._target.lease_ttl_s / 3

    def _listen(self, link: Link) -> None:
        if self._waiting and not self._listens:
            link.run_script(f"LISTEN {channel_of(self._found.log)}")
            self._listens = True
            self._tell()  # What came before is not announced again: everybody looks once.

    def _tell(self, amended: set[str] | None = None) -> None:
        """Tell those who wait for one of these sagas; None tells all."""
        for about in list(self._waiting):
            if amended is None or about in amended:
                future = self._waiting.pop(about)
                with contextlib.suppress(concurrent.futures.InvalidStateError):  # Cancelled by who waited.
                    future.set_result(None)

    def _sleep(self, link: Link) -> None:
        left = self._renew_at - time.monotonic() if self.token is not None else None
        poll = select.poll()
        for descriptor in (link.fileno, self._ear.fileno()):
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(None if left is None else max(left * 1000, 0.0))
        if any(descriptor == self._ear.fileno() for descriptor, _ in ready):
            self._ear.recv(4096)

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            self._bell.send(b"!")


class Desk:
    """Where the deaths of owners are proved: each proof holds a row lock on a connection of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._idle: list[Link] = []
        self._lock = threading.Lock()

    def prove_dead(self, owner: str) -> DeadLease | None:
        """See LogStore.prove_dead.

        Raises:
            Gone, Refused: that could not be asked.
        """
        if _TOKEN.fullmatch(owner) is None:
            return None  # No process of ours has such a token.
        return self._server.patiently(lambda: self._prove(owner))

    def _prove(self, owner: str) -> DeadLease | None:
        link = self._take()
        try:
            link.run(_STAND_IN, owner)
            link.run_script("BEGIN")
            if link.run(_PROVE, owner):
                return DeadLease(self, link, owner)
            link.run_script("ROLLBACK")
        except BaseException:
            link.close()
            raise
        self.give_back(link)
        return None

    def _take(self) -> Link:
        with self._lock:
            while self._idle:
                link = self._idle.pop()
                try:
                    link.run("SELECT 1")
                except (Gone, Refused):
                    continue
                return link
        return self._server.connect()

    def give_back(self, link: Link) -> None:
        """Keep a connection for the next proof."""
        with self._lock:
            if link.open and len(self._idle) < _IDLE_LINKS_MAX:
                self._idle.append(link)
                return
        link.close()

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def inherited(self) -> object:
        """Return what a forked child must keep referenced, and never close."""
        return self._idle


class DeadLease:
    """See DeadOwner: the row of a dead owner, locked. Its owner cannot renew it meanwhile."""

    def __init__(self, desk: Desk, link: Link, owner: str) -> None:
        self._desk, self._owner = desk, owner
        self._link: Link | None = link

    def forget(self) -> None:
        """See DeadOwner.forget."""
        self._end(forget=True)

    def close(self) -> None:
        """See DeadOwner.close."""
        self._end(forget=False)

    def _end(self, *, forget: bool) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        with contextlib.suppress(Gone, Refused):  # Then the server has ended the transaction, and the lock with it.
            if forget:
                link.run(_FORGET, self._owner)
            link.run_script("COMMIT" if forget else "ROLLBACK")
        self._desk.give_back(link)

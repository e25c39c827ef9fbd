"""A TCP proxy between a log and its server that cuts, drops answers or stalls, at a message that the test names."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from urllib.parse import urlsplit, urlunsplit

PASS, CUT, LOSE_ANSWER, STALL, MUTE = "pass", "cut", "lose answer", "stall", "mute"
"""What to do with a request: forward it; close before the server has it; let the server do it and close instead of
answering; forward nothing more in either direction, and close nothing; forward requests and no answers, likewise."""


class CutProxy:
    """Forwards to the server of a URL. `decide(number)` says what happens to the client's request of that number."""

    def __init__(self, url, decide):
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._decide = decide
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.requests = 0
        self._lock = threading.Lock()
        self._stop, self._stopped = socket.socketpair()
        port = self._listener.getsockname()[1]
        user = f"{parts.username}@" if parts.username else ""
        self.url = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop.close()
        for thread in self._threads:
            thread.join()
        self._stopped.close()
        self._listener.close()

    def _accept(self):
        with selectors.DefaultSelector() as ready:
            ready.register(self._listener, selectors.EVENT_READ)
            ready.register(self._stopped, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    if key.fileobj is self._stopped:
                        return
                    client, _ = self._listener.accept()
                    thread = threading.Thread(target=self._serve, args=(client,))
                    self._threads.append(thread)
                    thread.start()

    def _serve(self, client):
        try:
            server = socket.create_connection(self._server, timeout=10)
        except OSError:
            client.close()
            return
        with client, server, selectors.DefaultSelector() as ready:
            for one in (client, server, self._stopped):
                ready.register(one, selectors.EVENT_READ)
            with contextlib.suppress(OSError):
                self._forward(client, server, ready)

    def _forward(self, client, server, ready):
        losing = stalled = muted = False
        while True:
            for key, _ in ready.select():
                if key.fileobj is self._stopped:
                    return
                data = b"" if stalled else key.fileobj.recv(1 << 20)
                if stalled:
                    ready.unregister(key.fileobj)
                    continue
                if not data:
                    return
                if key.fileobj is server:
                    if losing:
                        return
                    if not muted:
                        client.sendall(data)
                    continue
                action = self._decided()
                if action == CUT:
                    return
                if action == STALL:
                    stalled = True
                    continue
                losing, muted = action == LOSE_ANSWER, muted or action == MUTE
                server.sendall(data)

    def _decided(self):
        with self._lock:
            self.requests += 1
            number = self.requests
        return self._decide(number)

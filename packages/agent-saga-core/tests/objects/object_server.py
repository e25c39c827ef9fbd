"""An object store over HTTP with ETags and conditional writes, in threads, which can be told to misbehave."""

from __future__ import annotations

import email.utils
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

LOSE_REQUEST, LOSE_ANSWER, FAIL_BEFORE, FAIL_AFTER, SLOW, TWICE, THROTTLE = (
    "lose request",
    "lose answer",
    "503 before",
    "500 after",
    "slow",
    "twice",
    "429",
)
"""Faults of one request: nothing is done and no answer given; it is done and no answer given; an error before or after
it is done; it is done only when the client has given up; it is done twice, as by a proxy that tries again; 429."""
FAULTS = (LOSE_REQUEST, LOSE_ANSWER, FAIL_BEFORE, FAIL_AFTER, SLOW, TWICE, THROTTLE)


class ObjectServer:
    """The store. `decide(number, method, path)` returns a fault for a request, or None."""

    def __init__(self, decide=None):
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.decide = decide or (lambda number, method, path: None)
        self.requests = 0
        self.lock = threading.Lock()
        self.release = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fault(self, method, path):
        with self.lock:
            self.requests += 1
            number = self.requests
        return self.decide(number, method, path)

    def put(self, path, data, expected, *, absent):
        """Write under a condition; return the etag, or None."""
        with self.lock:
            found = self.objects.get(path)
            if (found is not None) if absent else (found is None or etag_of(found) != expected):
                return None
            self.objects[path] = (data, time.time())
            return etag_of(self.objects[path])


def etag_of(found):
    return '"' + hashlib.sha256(found[0] + str(found[1]).encode()).hexdigest()[:32] + '"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: ObjectServer

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self._starts_badly("GET"):
            return
        parts = urlsplit(self.path)
        if parts.query:
            words = {name: values[0] for name, values in parse_qs(parts.query).items()}
            base, after = parts.path, words.get("after", "")
            with self.store.lock:
                names = sorted(path.removeprefix(base) for path in self.store.objects if path.startswith(base))
            page = [name for name in names if name.startswith(words["prefix"]) and name > after][:50]
            self._answer(200, json.dumps(page).encode())
            return
        with self.store.lock:
            found = self.store.objects.get(parts.path)
        if found is None:
            self._answer(404)
        else:
            self._answer(
                200, found[0], ETag=etag_of(found), **{"Last-Modified": email.utils.formatdate(found[1], usegmt=True)}
            )

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        fault = self.store.fault("PUT", self.path)
        if fault == SLOW:
            self.store.release.wait(10)  # Until the client has given up: it is done all the same, late.
        if self._fails_before(fault):
            return
        expected = self.headers.get("If-Match")
        etag = self.store.put(self.path, data, expected, absent=expected is None)
        if fault == TWICE:
            etag = self.store.put(self.path, data, expected, absent=expected is None)
        if fault in {LOSE_ANSWER, SLOW}:
            self.close_connection = True
        elif fault == FAIL_AFTER:
            self._answer(500)
        elif etag is None:
            self._answer(412)
        else:
            self._answer(200, ETag=etag)

    def _starts_badly(self, method):
        fault = self.store.fault(method, self.path)
        if fault == LOSE_ANSWER:
            self.close_connection = True
            return True
        if fault in {FAIL_AFTER, SLOW, TWICE}:
            fault = FAIL_BEFORE
        return self._fails_before(fault)

    def _fails_before(self, fault):
        if fault == LOSE_REQUEST:
            self.close_connection = True
        elif fault in {FAIL_BEFORE, THROTTLE}:
            self._answer(503 if fault == FAIL_BEFORE else 429)
        else:
            return False
        return True

    def _answer(self, status, data=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

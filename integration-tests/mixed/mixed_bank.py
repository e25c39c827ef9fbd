"""A payment and courier service over HTTP, in a process of its own. Its ledger counts attempts apart from effects.

`python mixed_bank.py FOLDER` prints its port. A request with a known Idempotency-Key is answered as the first time.
"""

import json
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

LOCK = threading.Lock()
TABLES = """
CREATE TABLE orders(id INTEGER PRIMARY KEY, kind TEXT, key TEXT UNIQUE, what TEXT, undone INTEGER DEFAULT 0);
CREATE TABLE attempts(path TEXT, key TEXT);
"""


class Service(BaseHTTPRequestHandler):
    """POST /KIND makes an order, POST /KIND/undo ends it by its key, GET /KIND?key= finds it, GET /ledger shows all."""

    ledger: sqlite3.Connection

    def log_message(self, *args):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        _, kind, *undo = self.path.split("/")
        with LOCK, self.ledger:
            self.ledger.execute("INSERT INTO attempts VALUES(?, ?)", (self.path, key))
            if undo:
                self.ledger.execute("UPDATE orders SET undone = 1 WHERE key = ?", (body["of"],))
                done = {"undone": body["of"]}
            else:
                what = json.dumps(body, sort_keys=True)
                self.ledger.execute("INSERT OR IGNORE INTO orders(kind, key, what) VALUES(?, ?, ?)", (kind, key, what))
                (number,) = self.ledger.execute("SELECT id FROM orders WHERE key = ?", (key,)).fetchone()
                done = {"id": f"{kind}-{number}", "key": key}
        self.answer(200, done)

    def do_GET(self):
        split = urlsplit(self.path)
        with LOCK:
            if split.path == "/ledger":
                standing = self.ledger.execute("SELECT kind, what FROM orders WHERE NOT undone").fetchall()
                made = self.ledger.execute("SELECT count(*) FROM orders").fetchone()[0]
                attempts = self.ledger.execute("SELECT count(*) FROM attempts").fetchone()[0]
                self.answer(200, {"standing": standing, "made": made, "attempts": attempts})
                return
            key = parse_qs(split.query)["key"][0]
            found = self.ledger.execute("SELECT id, kind FROM orders WHERE key = ?", (key,)).fetchone()
        self.answer(404 if found is None else 200, found and {"id": f"{found[1]}-{found[0]}", "key": key})


def main(folder):
    Service.ledger = sqlite3.connect(Path(folder) / "bank.db", check_same_thread=False)
    Service.ledger.executescript(TABLES)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # Its starter holds the pipe: when that is gone, so is this.


if __name__ == "__main__":
    main(sys.argv[1])

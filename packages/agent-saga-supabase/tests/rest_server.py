"""A server for tests that speaks the part of the PostgREST protocol that the Supabase client uses, over a PostgreSQL.

Everything about data (types, JSON, constraints, triggers) is done by PostgreSQL itself, as in PostgREST: a
transaction for each request, `json_agg` for bodies, the headers in the setting `request.headers`. Storage and auth are
dictionaries.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg

OPERATORS = {
    "eq": "=", "neq": "<>", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "like": "like", "ilike": "ilike",
    "cs": "@>", "cd": "<@", "ov": "&&",
}  # fmt: skip
STATUS = {"23505": 409, "23503": 409, "42501": 403, "42P01": 404, "42883": 404, "40001": 500, "40P01": 500}
RESERVED = {"select", "order", "limit", "offset", "on_conflict", "columns"}
LISTED = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,]+)')


class Refused(Exception):
    """An error of PostgREST itself."""

    def __init__(self, status, code, message):
        super().__init__(message)
        self.status = status
        self.body = {"code": code, "message": message, "details": None, "hint": None}


def name(text):
    return '"' + text.strip().strip('"').replace('"', '""') + '"'


def literal(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return "'" + text.replace("'", "''") + "'"


def condition(column, spec):
    operator, _, value = spec.partition(".")
    if operator == "not":
        return f"not ({condition(column, value)})"
    if operator == "is":
        return f"{name(column)} is {value.replace('_', ' ')}"
    if operator == "in":
        items = [re.sub(r"\\(.)", r"\1", a) or b for a, b in LISTED.findall(value[1:-1])]
        return f"{name(column)} in ({', '.join(map(literal, items))})" if items else "false"
    if operator not in OPERATORS:
        raise Refused(400, "PGRST100", f"failed to parse filter ({spec})")
    value = value.replace("*", "%") if operator in {"like", "ilike"} else value
    return f"{name(column)} {OPERATORS[operator]} {literal(value)}"


def logic(spec, word):
    parts, depth, start = [], 0, 1
    for place, sign in enumerate(spec):
        depth += (sign == "(") - (sign == ")")
        if (sign == "," and depth == 1) or depth == 0:
            parts.append(spec[start:place])
            start = place + 1
    made = []
    for part in parts:
        inner = re.fullmatch(r"(and|or)(\(.*\))", part)
        made.append(logic(inner[2], inner[1]) if inner else condition(*part.split(".", 1)))
    return "(" + f" {word} ".join(made) + ")"


def where(query):
    made = [
        logic(value, key) if key in {"and", "or"} else condition(key, value)
        for key, value in query
        if key not in RESERVED
    ]
    return " where " + " and ".join(made) if made else ""


def columns(given):
    return "*" if not given or given == "*" else ", ".join(map(name, given.split(",")))


def tail(given):
    sql = ""
    if "order" in given:
        parts = (part.split(".") for part in given["order"].split(","))
        sql = " order by " + ", ".join(f"{name(part[0])} {'desc' if 'desc' in part else 'asc'}" for part in parts)
    return sql + "".join(f" {word} {int(given[word])}" for word in ("limit", "offset") if word in given)


def statement(method, table, query, prefer, body):
    """Return the SQL of a request."""
    given = dict(query)
    if method in {"GET", "HEAD"}:
        return f"select {columns(given.get('select'))} from {table}{where(query)}{tail(given)}"
    returning = f" returning {columns(given.get('select'))}"
    if method == "DELETE":
        return f"delete from {table}{where(query)}{returning}"
    parsed = json.loads(body)
    if method == "PATCH":
        record = f"json_populate_record(null::{table}, {literal(body)})"
        sets = ", ".join(f"{name(key)} = ({record}).{name(key)}" for key in parsed)
        return f"update {table} set {sets}{where(query)}{returning}"
    rows = parsed if isinstance(parsed, list) else [parsed]
    keys = (
        given["columns"].split(",") if "columns" in given else list(dict.fromkeys(key for row in rows for key in row))
    )
    listed = ", ".join(map(name, keys))
    source = f"select {listed} from json_populate_recordset(null::{table}, {literal(rows)})" if keys else ""
    sql = f"insert into {table} ({listed}) {source}" if keys else f"insert into {table} default values"
    if "resolution=" in prefer:
        updates = ", ".join(f"{name(key)} = excluded.{name(key)}" for key in keys)
        target = ", ".join(map(name, (given.get("on_conflict") or "id").split(",")))
        does = "nothing" if "ignore-duplicates" in prefer else f"update set {updates}"
        sql += f" on conflict ({target}) do {does}"
    return sql + returning


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        service, _, rest = url.path.lstrip("/").partition("/v1/")
        world = self.server.world
        with world.lock:
            world.requests.append((self.command, url.path))
            loses = world.loses and self.command != "GET" and "agent_saga" not in url.path
            lost, world.loses = (world.loses, None) if loses else (None, world.loses)
        if lost == "request":
            self.close_connection = True
            return
        try:
            if service == "rest":
                answer = self.rest(unquote(rest), parse_qsl(url.query, keep_blank_values=True), body.decode())
            else:
                answer = getattr(self, service)(rest, body)
        except Refused as error:
            answer = error.status, {}, json.dumps(error.body)
        except psycopg.Error as error:
            told = error.diag
            answer_body = {
                "code": error.sqlstate,
                "message": told.message_primary,
                "details": told.message_detail,
                "hint": told.message_hint,
            }
            answer = STATUS.get(error.sqlstate or "", 400), {}, json.dumps(answer_body)
        if lost == "response":
            self.close_connection = True
            return
        self.reply(*answer)

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any

    def reply(self, status, headers, text):
        content = text.encode()
        self.send_response(status)
        for key, value in {"content-type": "application/json", **headers, "content-length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def rest(self, rest, query, body):
        prefer = ",".join(self.headers.get_all("prefer") or [])
        reads = self.command in {"GET", "HEAD"}
        schema = self.headers.get("accept-profile" if reads else "content-profile") or "public"
        with psycopg.connect(self.server.world.url) as connection:
            headers = json.dumps({key.lower(): value for key, value in self.headers.items()})
            connection.execute("select set_config('request.headers', %s, true)", [headers])
            if rest.startswith("rpc/"):
                return self.call(connection, f"{name(schema)}.{name(rest[4:])}", json.loads(body or "{}"))
            table = f"{name(schema)}.{name(rest)}"
            sql = statement(self.command, table, query, prefer, body)
            whole = f"with q as ({sql}) select coalesce(json_agg(q), '[]')::text, count(*) from q"
            text, count = connection.execute(whole).fetchone()
            total = "*"
            if "count=" in prefer:
                total = count
                if reads:
                    total = connection.execute(f"select count(*) from {table}{where(query)}").fetchone()[0]
            single = "vnd.pgrst.object" in (self.headers.get("accept") or "")
            if single and count != 1:
                raise Refused(406, "PGRST116", "Cannot coerce the result to a single JSON object")
        ranged = {"content-range": f"{f'0-{count - 1}' if count else '*'}/{total}"}
        if not reads and "return=representation" not in prefer:
            return 201 if self.command == "POST" else 204, ranged, ""
        return 201 if self.command == "POST" else 200, ranged, text[1:-1] if single else text

    def call(self, connection, function, arguments):
        given = ", ".join(f"{name(key)} => {literal(value)}" for key, value in arguments.items())
        try:
            found = connection.execute(f"select to_json(x)::text from {function}({given}) x").fetchone()
        except psycopg.errors.UndefinedFunction as error:
            raise Refused(404, "PGRST202", f"Could not find the function {function}") from error
        return 200, {}, (found[0] if found else None) or "null"

    def functions(self, rest, body):
        return 200, {}, json.dumps({"ran": rest})

    def storage(self, rest, body):
        files = self.server.world.files
        if rest in {"object/move", "object/copy"}:
            given = json.loads(body)
            bucket = given["bucketId"]
            source = bucket, given["sourceKey"]
            target = given.get("destinationBucket") or bucket, given["destinationKey"]
            files[target] = files.pop(source) if rest == "object/move" else files[source]
            return 200, {}, json.dumps({"message": "done", "Key": "/".join(target)})
        bucket, _, path = rest.removeprefix("object/").partition("/")
        if self.command == "DELETE":
            gone = [path for path in json.loads(body)["prefixes"] if files.pop((bucket, path), None) is not None]
            return 200, {}, json.dumps([{"name": path} for path in gone])
        files[bucket, path] = body
        return 200, {}, json.dumps({"Id": "1", "Key": f"{bucket}/{path}"})

    def auth(self, rest, body):
        users = self.server.world.users
        if self.command == "DELETE":
            users.pop(rest.rsplit("/", 1)[1])
            return 200, {}, "{}"
        user = {"id": f"0000-{len(users)}", "email": json.loads(body)["email"], "aud": "authenticated"}
        user |= {"app_metadata": {}, "user_metadata": {}, "created_at": "2026-01-01T00:00:00Z"}
        users[user["id"]] = user
        return 200, {}, json.dumps(user)

    def log_message(self, *_):
        """Say nothing."""


class World:
    """A running server.

    Attributes:
        url: of the database.
        address: of the server.
        requests: what it got.
        loses: `request` drops the next write before it runs, `response` after.
        files, users: what storage and auth hold.
    """

    def __init__(self, url):
        self.url = url
        self.lock = threading.Lock()
        self.requests, self.loses, self.files, self.users = [], None, {}, {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.world = self
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def dump(self):
        with psycopg.connect(self.url) as connection:
            return {
                table: connection.execute(f"select t::text from {table} t order by 1").fetchall()
                for table in ("people", "orders", "kv")
            }

    def run(self, sql):
        with psycopg.connect(self.url) as connection:
            connection.execute(sql)

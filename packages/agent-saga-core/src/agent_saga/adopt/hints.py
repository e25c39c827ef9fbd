"""Reasons to think that a tool has this or that effect. They are shown to a human; nothing acts on them."""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_saga.adopt.model import Hint
from agent_saga.adopt.sdk import CALLS, HTTP, HTTP_CLIENTS, SQL, VERBS
from agent_saga.adopt.source import Defined, Function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent_saga.adopt.model import Class
    from agent_saga.adopt.names import Names
    from agent_saga.adopt.source import Scope

HELPERS_MAX: Final = 20
"""Functions of the project that are looked into behind one tool."""
_SQL: Final = re.compile(r"^\s*(select|insert|update|delete|drop|truncate|replace|merge|alter)\b", re.IGNORECASE)
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True, slots=True)
class Seen:
    """One call in a body, by its dotted name as far as it is known."""

    dotted: str
    node: ast.Call
    scope: Scope


def words_of(name: str) -> list[str]:
    """Return the words of `bookFlight`, `book_flight` or `Book a flight`, in lower case."""
    return [word.lower() for word in _WORDS.findall(name)]


def hints_for(name: str, function: Defined | None, names: Names) -> list[Hint]:
    """Return all reasons that name and body give, the body's first."""
    found: dict[str, Hint] = {}
    if function is not None:
        for hint in _body_hints(function, names):
            found.setdefault(hint.reason, hint)
    words = words_of(name)
    if words and (effect := VERBS.get(words[0])) is not None:
        hint = Hint(effect=effect, reason=f"its name begins with {words[0]!r}")
        found.setdefault(hint.reason, hint)
    return list(found.values())


def _body_hints(function: Defined, names: Names) -> Iterator[Hint]:
    for seen in calls_in(function, names):
        where = f"{seen.scope.module.relative}:{seen.node.lineno}"
        if (effect := _known_call(seen.dotted)) is not None:
            yield Hint(effect=effect, reason=f"calls {seen.dotted} ({where})")
        elif (verb := _http_verb(seen)) is not None:
            yield Hint(effect=HTTP[verb], reason=f"sends HTTP {verb.upper()} ({where})")
        elif (mode := _open_mode(seen)) is not None:
            yield Hint(effect="reversible", reason=f"opens a file with mode {mode!r} ({where})")
        elif (word := _sql_word(seen, names)) is not None:
            yield Hint(effect=SQL[word], reason=f"runs SQL {word.upper()} ({where})")


def calls_in(function: Defined, names: Names) -> Iterator[Seen]:
    """Yield the calls in a function and in the functions of the project that it calls."""
    queue, known = [function], {id(function.node)}
    while queue:
        one = queue.pop(0)
        assert isinstance(one.node, Function)
        for node in ast.walk(one.node):
            if not isinstance(node, ast.Call):
                continue
            yield from (Seen(dotted, node, one.scope) for dotted in _names_called(node, one.scope, names))
            for atom in names.atoms(node.func, one.scope):
                fresh = isinstance(atom, Defined) and isinstance(atom.node, Function) and id(atom.node) not in known
                if fresh and len(known) < HELPERS_MAX:
                    known.add(id(atom.node))  # type: ignore[union-attr]
                    queue.append(atom)  # type: ignore[arg-type]


def _names_called(node: ast.Call, scope: Scope, names: Names) -> list[str]:
    dotted = sorted(names.dotted(node.func, scope))
    if not dotted and isinstance(node.func, ast.Attribute):
        return [ast.unparse(node.func)] if len(ast.unparse(node.func)) < 100 else [f"?.{node.func.attr}"]  # noqa: PLR2004
    return [name.removeprefix("builtins.") if name == "builtins.open" else name for name in dotted[:1]]


def _known_call(dotted: str) -> Class | None:
    plain = dotted.replace("()", "")
    for pattern, effect in CALLS:
        if fnmatch.fnmatchcase(plain, pattern.replace("()", "")) or fnmatch.fnmatchcase(dotted, pattern):
            return effect
    return None


def _http_verb(seen: Seen) -> str | None:
    last = seen.dotted.rpartition(".")[2].lower()
    top = seen.dotted.partition(".")[0].partition("(")[0]
    if last == "request" and top in HTTP_CLIENTS and seen.node.args and isinstance(seen.node.args[0], ast.Constant):
        last = str(seen.node.args[0].value).lower()
    if last not in HTTP:
        return None
    if top in HTTP_CLIENTS:
        return last
    base = seen.dotted.rpartition(".")[0].lower()
    client = any(word in base for word in ("session", "client", "http", "api"))
    return last if client and seen.node.args and _looks_like_path(seen.node.args[0]) else None


def _looks_like_path(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(v, ast.Constant) and "/" in str(v.value) for v in node.values)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and "/" in node.value


def _open_mode(seen: Seen) -> str | None:
    if seen.dotted.rpartition(".")[2] != "open":
        return None
    position = 1 if seen.dotted == "open" else 0
    given = [k.value for k in seen.node.keywords if k.arg == "mode"] or seen.node.args[position : position + 1]
    mode = given[0].value if given and isinstance(given[0], ast.Constant) else None
    return mode if isinstance(mode, str) and len(mode) <= 3 and set(mode) & set("wax+") else None  # noqa: PLR2004


def _sql_word(seen: Seen, names: Names) -> str | None:
    if seen.dotted.rpartition(".")[2] not in {"execute", "executemany", "text", "fetch", "fetchrow", "executescript"}:
        return None
    for argument in seen.node.args[:1]:
        text = _first_text(argument)
        for one in [text] if text else names.texts(argument, seen.scope):
            if found := _SQL.match(one):
                return found.group(1).lower()
    return None


def _first_text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
        return str(node.values[0].value)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def digest(parameters: tuple[tuple[str, str, bool], ...], function: Defined | None, names: Names) -> str:
    """Return a digest of a tool's signature and of what it calls; words and layout do not count."""
    parts = [f"{name}:{annotation}" for name, annotation, _ in parameters]
    if function is not None:
        for seen in calls_in(function, names):
            word = _http_verb(seen) or _sql_word(seen, names) or _open_mode(seen) or ""
            parts.append(f"{seen.dotted}/{word}")
    return hashlib.sha256("\n".join([*parts[: len(parameters)], *sorted(set(parts))]).encode()).hexdigest()[:12]

"""What a statement does, as far as it can be told before it runs; what cannot be captured is refused here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.sql import dml, visitors

from agent_saga.errors import UsageError

DECLARED: Final = "agent_saga"
"""The execution option with which a program says what a statement does that cannot be read: `"read_only"`."""


class NotCapturable(UsageError):
    """A statement inside a saga whose changes could not be taken back; it did not run."""


_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_READS: Final = frozenset({"SELECT", "SHOW", "EXPLAIN", "VALUES", "WITH", "TABLE", "PRAGMA", "SET", "BEGIN", "START"})
_WRITES: Final = re.compile(
    r"\b(INSERT|UPDATE|DELETE|MERGE|REPLACE|COPY|CALL|DO|TRUNCATE|CREATE|ALTER|DROP|INTO|NEXTVAL|SETVAL|COMMIT|END|"
    r"ROLLBACK|GRANT|REVOKE|VACUUM|REINDEX|ATTACH|DETACH|LOCK|EXECUTE|PREPARE)\b|;\s*\S",
    re.IGNORECASE,
)
_INSERT_PREFIXES: Final = frozenset({"OR REPLACE", "OR IGNORE", "OR ABORT"})
_LOCKING: Final = re.compile(r"\bFOR\s+(NO\s+KEY\s+)?UPDATE\b", re.IGNORECASE)


def without_quotes(sql: str) -> str:
    """Return SQL text without its strings, quoted names and comments."""
    return _QUOTED.sub(" ' ", sql)


def only_reads(sql: str) -> bool:
    """Tell whether SQL text surely has no effect that we would have to take back."""
    bare = _LOCKING.sub(" ", without_quotes(sql)).strip()
    first = bare.split(None, 1)[0].upper().rstrip(";") if bare else ""
    return first in _READS and (first in {"SET", "BEGIN", "START"} or _WRITES.search(bare) is None)


def check_text(sql: str, options: Mapping[str, Any]) -> None:
    """Refuse SQL text that may write.

    Raises:
        NotCapturable: it may, and is not declared.
    """
    if options.get(DECLARED) != "read_only" and not only_reads(sql):
        raise NotCapturable(
            f"SQL text inside a saga whose changes cannot be captured: {sql.strip()[:120]!r}; it did not run. Write it "
            f"with SQLAlchemy's insert(), update() or delete(), or, where it changes nothing that must be taken back, "
            f"say so: execution_options={{{DECLARED!r}: 'read_only'}}"
        )


def prefix_of(statement: dml.UpdateBase) -> str:
    """Return what is written behind the first word of a statement, as OR REPLACE, in capitals."""
    parts = statement._prefixes  # noqa: SLF001 - SQLAlchemy has no public reader of them.
    return " ".join(" ".join(str(part).upper().split()) for part, dialect in parts if dialect in {"*", "sqlite"})


def written_by(statement: Any, options: Mapping[str, Any]) -> dml.UpdateBase | None:
    """Return the INSERT, UPDATE or DELETE that a statement is, or None when it only reads.

    Raises:
        NotCapturable: it writes in a way that cannot be captured.
    """
    if options.get(DECLARED) == "read_only":
        return None
    if isinstance(statement, sa.TextClause):
        check_text(statement.text, options)
        return None
    if isinstance(statement, sa.schema.ExecutableDDLElement):
        raise NotCapturable("a change of the schema cannot be taken back; it did not run. Make it outside of the saga")
    hidden = isinstance(statement, sa.sql.ClauseElement) and any(
        (isinstance(part, dml.UpdateBase) and part is not statement)
        or (isinstance(part, sa.TextClause) and not only_reads(f"SELECT {part.text}"))
        for part in visitors.iterate(statement)
    )
    if hidden:
        raise NotCapturable("a statement that writes inside another one cannot be captured; it did not run")
    if not isinstance(statement, dml.UpdateBase):
        return None
    if not isinstance(statement.table, sa.Table):
        raise NotCapturable(f"only changes of tables can be captured, not of {statement.table}; it did not run")
    if not isinstance(statement, dml.Insert | dml.Update | dml.Delete):
        raise NotCapturable(f"a {type(statement).__name__} cannot be captured; it did not run")
    if prefix_of(statement) not in ({"", *_INSERT_PREFIXES} if isinstance(statement, dml.Insert) else {""}):
        raise NotCapturable(f"a statement with the prefix {prefix_of(statement)} cannot be captured; it did not run")
    return statement

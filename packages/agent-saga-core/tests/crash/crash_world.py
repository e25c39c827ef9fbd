"""The world of the crash tests: a SQLite file that the tools write themselves, apart from every log.

Each call leaves an *attempt* before anything else, and an *effect* when it changed something, in transactions of their
own: a process can die between the two, and before and after each.
"""

import sqlite3

_SCHEMA = """
CREATE TABLE attempts(n INTEGER PRIMARY KEY, op TEXT, thing TEXT, key TEXT);
CREATE TABLE effects(n INTEGER PRIMARY KEY, op TEXT, thing TEXT, key TEXT);
"""


class World:
    """What happened outside.

    `standing` counts, for one thing, effects minus compensations that took effect.
    """

    def __init__(self, path):
        self._rows = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self._rows.execute("PRAGMA synchronous=OFF")  # The tests kill processes, not the machine.

    @classmethod
    def create(cls, path):
        world = cls(path)
        world._rows.execute("PRAGMA journal_mode=wal")
        world._rows.executescript(_SCHEMA)
        return world

    def attempt(self, op, thing, key):
        self._rows.execute("INSERT INTO attempts(op, thing, key) VALUES(?, ?, ?)", (op, thing, key))

    def effect(self, op, thing, key):
        """Change the thing, whatever happened before."""
        self._rows.execute("INSERT INTO effects(op, thing, key) VALUES(?, ?, ?)", (op, thing, key))

    def effect_once(self, op, thing, key):
        """Change the thing unless a request with this key did so before: a remote that honours keys."""
        self._rows.execute(
            "INSERT INTO effects(op, thing, key) SELECT ?, ?, ? "
            "WHERE NOT EXISTS (SELECT 1 FROM effects WHERE op = ? AND key = ?)",
            (op, thing, key, op, key),
        )

    def undo_if_there(self, thing, key):
        """Take the thing away if it is there: an idempotent compensation."""
        self._rows.execute(
            "INSERT INTO effects(op, thing, key) SELECT 'undo', ?, ? WHERE "
            "(SELECT total(CASE op WHEN 'do' THEN 1 ELSE -1 END) FROM effects WHERE thing = ?) > 0",
            (thing, key, thing),
        )

    def standing(self, thing):
        ((net,),) = self._rows.execute(
            "SELECT cast(total(CASE op WHEN 'do' THEN 1 ELSE -1 END) AS INTEGER) FROM effects WHERE thing = ?", (thing,)
        )
        return net

    def by_key(self, op, key):
        return self._rows.execute("SELECT thing FROM effects WHERE op = ? AND key = ?", (op, key)).fetchone()

    def all(self):
        """Everything that happened, to compare before and after."""
        return [
            tuple(self._rows.execute("SELECT * FROM attempts ORDER BY n")),
            tuple(self._rows.execute("SELECT * FROM effects ORDER BY n")),
        ]

    def attempts(self):
        return [row[1:] for row in self.all()[0]]

    def effects(self):
        return [row[1:] for row in self.all()[1]]

    def close(self):
        self._rows.close()

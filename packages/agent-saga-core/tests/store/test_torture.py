"""Everything that can be done to a small log by SQL, and to its bytes: noticed, or not shown. Rule ids: T-n.

The edits are complete for the log at hand, and the same in each run; what is drawn is drawn from a fixed seed.
"""

import itertools
import random

import pytest
from store_cases import dump, everything, saga_id
from torture import TABLES, Bench, code, copied, gates, make, mixed, odd_values, printed, tiny

from agent_saga.store.open import open_log

BUILDS = {"tiny": tiny, "mixed": mixed, "gates": gates, "everything": everything}
WHOLE = [pytest.mark.exhaustive, pytest.mark.timeout(1800)]
SMALL = pytest.mark.parametrize("bench", ["mixed", pytest.param("everything", marks=WHOLE)], indirect=True)
WITH_GATES = pytest.mark.parametrize(
    "bench", ["mixed", "gates", pytest.param("everything", marks=WHOLE)], indirect=True
)


pytestmark = pytest.mark.slow


@pytest.fixture
def bench(request, tmp_path):
    made = Bench(make(BUILDS[request.param], tmp_path / request.param))
    yield made
    made.close()
    print(f"{made.tried} edits, {made.noticed} noticed, {made.tried - made.noticed} show nothing")


@SMALL
def test_the_bench_knows_every_cell(bench):
    """T-1: no table and no column of a log is left out, and none is empty."""
    found = {
        name: tuple(column for _, column, *_ in bench.query(f"PRAGMA table_info({name})"))
        for (name,) in bench.query("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert found == TABLES
    assert all(bench.rows(table) for table in TABLES)


@pytest.mark.parametrize("bench", ["tiny", pytest.param("everything", marks=WHOLE)], indirect=True)
@pytest.mark.parametrize("column", ["body", "hash", "payload"])
def test_every_byte_of_every_record(bench, column):
    """T-2: a bit flipped, another case, a byte lost, a space put in, a byte doubled: noticed at every byte."""
    index = TABLES["records"].index(column)
    cells = [row for row in bench.rows("records") if row[index] is not None]
    for row in cells:
        data = row[index]
        for at in range(len(data)):
            flipped = bytes([data[at] ^ (1 << (at + row[0]) % 8)])
            for name, new in (("flip", flipped), ("lose", b""), ("put in", data[at : at + 1] + b"0")):
                if (at + len(name)) % 3 and name != "flip" and bench.tried < 20_000:
                    continue  # Every third byte in the small log; a flip in each.
                changed = data[:at] + new + data[at + 1 :]
                bench.check((name, column, row[0], at), bench.set("records", column, row, changed))
    assert bench.noticed == bench.tried >= sum(len(row[index]) for row in cells)


@SMALL
def test_every_record_removed_copied_moved_and_renumbered(bench):
    """T-3: also when the row's count follows the edit: the chain does not."""
    records = bench.rows("records")
    counts = {row[0]: row[15] for row in bench.rows("sagas")}
    last = len(records)
    for row in records:
        pos, saga, n, *rest = row
        this = ("DELETE FROM records WHERE pos = ?", pos)
        fewer = ("UPDATE sagas SET count = count - 1 WHERE saga = ?", saga)
        more = ("UPDATE sagas SET count = count + 1 WHERE saga = ?", saga)
        bench.check(("delete", pos), this)
        bench.check(("delete and count", pos), this, fewer)
        closed = ("UPDATE records SET n = n - 1 WHERE saga = ? AND n > ?", saga, n)
        bench.check(("delete and close up", pos), this, fewer, closed)
        shifted = (
            ("UPDATE records SET pos = -pos WHERE pos > ?", pos),
            ("UPDATE records SET pos = -1 - pos WHERE pos < 0",),
        )
        bench.check(("delete and close up all", pos), this, fewer, closed, *shifted)
        insert = "INSERT INTO records VALUES(?, ?, ?, ?, ?, ?)"
        copy = (insert, last + 1, saga, counts[saga] + 1, *rest)
        bench.check(("duplicate", pos), copy)
        bench.check(("duplicate and count", pos), copy, more)
        for other in range(1, counts[saga] + 2):
            bench.check(("renumber", pos, other), ("UPDATE records SET n = ? WHERE pos = ?", other, pos))
        for other in (-1, 0, last + 1, last + 9):
            bench.check(("reposition", pos, other), ("UPDATE records SET pos = ? WHERE pos = ?", other, pos))
        for target, count in counts.items():
            moved = ("UPDATE records SET saga = ?, n = ? WHERE pos = ?", target, count + 1, pos)
            bench.check(("move", pos, target), moved)
            taken = ("UPDATE sagas SET count = count + 1 WHERE saga = ?", target)
            bench.check(("move and count", pos, target), moved, fewer, taken)
    assert bench.noticed == bench.tried > 25 * len(records)


@SMALL
def test_every_pair_of_records_swapped(bench):
    """T-4: positions, numbers, bodies, payloads, hashes and whole records: no two can trade places."""
    update = "UPDATE records SET pos = ?, saga = ?, n = ?, body = ?, payload = ?, hash = ? WHERE pos = ?"
    for one, two in itertools.combinations(bench.rows("records"), 2):
        for name, columns in (
            ("positions", {0}),
            ("places", {1, 2}),
            ("contents", {3, 4, 5}),
            ("bodies", {3}),
            ("payloads", {4}),
            ("hashes", {5}),
        ):
            swapped = [
                tuple(b if index in columns else a for index, (a, b) in enumerate(zip(x, y, strict=True)))
                for x, y in ((one, two), (two, one))
            ]
            aside = ("UPDATE records SET pos = -1, n = -1 WHERE pos = ?", one[0])
            second = (update, *swapped[1], two[0])
            bench.check((name, one[0], two[0]), aside, second, (update, *swapped[0], -1))
    assert bench.noticed == bench.tried > 500


@SMALL
def test_every_set_of_sagas_removed(bench):
    """T-5: sagas removed with every trace in every table leave gaps, or a log that is behind its mark."""
    sagas = sorted(row[0] for row in bench.rows("sagas"))
    chosen = random.Random(5)
    sets = [subset for size in (1, 2) for subset in itertools.combinations(sagas, size)]
    sets += [tuple(sagas[index:]) for index in range(len(sagas))]
    sets += [tuple(chosen.sample(sagas, size)) for size in range(3, len(sagas))]
    for subset in sets:
        traces = [
            (f"DELETE FROM {table} WHERE saga = ?", saga) for table in TABLES if table != "meta" for saga in subset
        ]
        bench.check(("removed", subset), *traces)
        older = ("INSERT OR IGNORE INTO keys SELECT key, saga FROM sagas WHERE key IS NOT NULL AND incarnation = 1",)
        bench.check(("removed, older key restored", subset), *traces, older)
        kept = [trace for trace in traces if " records " not in trace[0]]
        bench.check(("removed, records left", subset), *kept)
    assert bench.noticed == bench.tried >= 2 * len(sets)


@WITH_GATES
@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_cell_of_every_table(bench, table):
    """T-6: set to what its column holds elsewhere, to neighbours, other types and extremes.

    `meta` has cells that mean nothing (`sync`) or that other checks stand on (`log`, which ties the mark); these show
    nothing of any saga.
    """
    rows = bench.rows(table)
    for row in rows:
        for index, column in enumerate(TABLES[table]):
            others = {other[index] for other in rows} if table != "records" else set()  # Those swaps are T-4.
            for value in odd_values(row[index], sorted(others, key=repr)):
                edit = bench.set(table, column, row, value)
                bench.check((table, row[:2], column, value), edit, may_pass=table == "meta")
    assert bench.tried >= 20 * len(rows)
    assert table == "meta" or bench.noticed == bench.tried


@WITH_GATES
@pytest.mark.parametrize("table", sorted(set(TABLES) - {"meta", "records"}))
def test_every_row_of_every_derived_table(bench, table):
    """T-7: removed, copied under another name, swapped with another one, and all of them removed."""
    names = TABLES[table]
    rows, marks = bench.rows(table), ", ".join("?" * len(names))
    where = " AND ".join(f"{name} IS ?" for name in names)
    sagas = [row[0] for row in bench.rows("sagas")]
    assert rows or bench.log.location.endswith("gates/log.db")
    silent = 0
    bench.check((table, "all removed"), (f"DELETE FROM {table}",))
    for row in rows:
        silent += row[0] == "total"  # A total that is not there is added up when it is next asked for.
        bench.check((table, "removed", row), (f"DELETE FROM {table} WHERE {where}", *row), may_pass=row[0] == "total")
        for index in range(len(names)):
            for value in (*sagas, "odd", 7, saga_id(99)):
                copy = tuple(value if at == index else cell for at, cell in enumerate(row))
                bench.check((table, "copied", copy), (f"INSERT INTO {table} VALUES({marks})", *copy))
    for one, two in itertools.combinations(rows, 2):
        for index in range(len(names)):
            swapped = [
                tuple(y[at] if at == index else cell for at, cell in enumerate(x)) for x, y in ((one, two), (two, one))
            ]
            gone = [(f"DELETE FROM {table} WHERE {where}", *row) for row in (one, two)]
            put = [(f"INSERT INTO {table} VALUES({marks})", *row) for row in swapped]
            bench.check((table, "swapped", names[index], one[:2], two[:2]), *gone, *put)
    assert bench.noticed == bench.tried - silent >= 3 * len(rows)


def test_what_edits_of_the_meta_table_show(tmp_path):
    """T-8: an id or a number in `meta` that was changed changes nothing that any command prints."""
    source = make(mixed, tmp_path / "made")
    before = printed(source)
    for name, value in (("sync", "99"), ("log", "ab" * 16), ("minor", "7"), ("more", "x")):
        copy = copied(source, tmp_path / "copy.db")
        bench = Bench(copy)
        bench.db.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (name, value))
        bench.close()
        assert (name, code(copy)) == (name, 0)
        assert printed(copy) == before


# -- the bytes of the file ----------------------------------------------------------------------------------------


def every(size, full, seed):
    """Return where to strike: everywhere, or at places drawn from a seed."""
    return range(size) if full else sorted(random.Random(seed).sample(range(size), 700))


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=WHOLE)])
def test_every_byte_of_the_file(tmp_path, full):
    """T-9: a flipped bit is noticed, or no reader shows anything else; the file's head byte by byte."""
    source, copy = make(mixed, tmp_path / "made"), tmp_path / "copy.db"
    data, before, told = source.read_bytes(), seen(source), printed(source)
    silent = 0
    for at in sorted({*every(len(data), full, 9), *range(100)}):
        copied(source, copy).write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        if code(copy) == 0:
            silent += 1
            assert seen(copy) == before, f"byte {at}"
            assert silent % 50 or printed(copy) == told, f"byte {at}"
    assert silent < len(data)


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=WHOLE)])
def test_runs_of_bytes_of_the_file(tmp_path, full):
    """T-10: zeros, noise and pages in one another's place are noticed, or show nothing."""
    source, copy = make(mixed, tmp_path / "made"), tmp_path / "copy.db"
    data, before = source.read_bytes(), seen(source)
    dice, page = random.Random(10), 4096
    pages = range(len(data) // page)
    damaged = [data[: p * page] + bytes(page) + data[(p + 1) * page :] for p in pages]
    for p, q in itertools.combinations(pages, 2):
        swapped = bytearray(data)
        swapped[p * page : (p + 1) * page] = data[q * page : (q + 1) * page]
        damaged.append(bytes(swapped))
        swapped[q * page : (q + 1) * page] = data[p * page : (p + 1) * page]
        damaged.append(bytes(swapped))
    for _ in range(3000 if full else 150):
        at, size = dice.randrange(len(data)), dice.choice([2, 8, 64, 512])
        noise = dice.choice([bytes(size), dice.randbytes(size), data[dice.randrange(len(data)) :][:size]])
        damaged.append(data[:at] + noise + data[at + len(noise) :])
    for number, bytes_ in enumerate(damaged):
        copied(source, copy).write_bytes(bytes_)
        assert code(copy) != 0 or seen(copy) == before, f"damage {number}"


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=WHOLE)])
def test_every_truncation_of_the_file(tmp_path, full):
    """T-11: a file that was cut, or has bytes behind its end, is noticed or reads as before."""
    source, copy = make(mixed, tmp_path / "made"), tmp_path / "copy.db"
    data, before = source.read_bytes(), seen(source)
    for size in sorted({*every(len(data), full, 11), *range(0, len(data), 1024)}):
        copied(source, copy).write_bytes(data[:size])
        assert code(copy) != 0 or seen(copy) == before, f"cut to {size}"
    for more in (b"\0", b"x" * 100, bytes(4096), data[:4096]):
        copied(source, copy).write_bytes(data + more)
        assert code(copy) != 0 or seen(copy) == before


def seen(path):
    log = open_log(str(path), create=False)
    try:
        return dump(log)
    finally:
        log.close()

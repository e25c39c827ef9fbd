"""The `-wal` of a process that was killed, damaged in every way: noticed, or not shown. Rule ids: W-n."""

import contextlib
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from store_cases import dump
from torture import code, copied, printed

from agent_saga.store.open import open_log

WORKER = Path(__file__).parent / "worker.py"
HEADER, FRAME, PAGE = 32, 24, 4096
WHOLE = [pytest.mark.exhaustive, pytest.mark.timeout(7200)]
FULL = pytest.mark.parametrize("full", [False, pytest.param(True, marks=WHOLE)])

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A log with sagas of every sort, most of them in the -wal only; its writer was killed."""
    path = tmp_path_factory.mktemp("killed") / "log.db"
    command = [sys.executable, str(WORKER), "write_and_die", str(path)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as worker:
        worker.communicate()
    assert worker.returncode == -signal.SIGKILL
    assert Path(f"{path}-wal").stat().st_size > 20 * PAGE
    Path(f"{path}-shm").unlink()  # As after a loss of power; with it SQLite trusts what other processes have read.
    return path


def seen(path):
    with contextlib.closing(open_log(str(path), create=False)) as log:
        return dump(log)


@pytest.fixture
def damaged(killed, tmp_path):
    """Check a damaged -wal against what the whole one shows; tell whether it was noticed."""
    before, told, silent = seen(copied(killed, tmp_path / "good.db")), None, 0

    def check(name, wal):
        nonlocal told, silent
        copy = copied(killed, tmp_path / "log.db")
        Path(f"{copy}-wal").write_bytes(wal)
        if code(copy) != 0:
            return True
        assert seen(copy) == before, f"shown, and not noticed: {name}"
        silent += 1
        if silent % 150 == 1:
            told = told or printed(copied(killed, tmp_path / "told.db"))
            assert printed(copy) == told, f"printed, and not noticed: {name}"
        return False

    return check


def frames(wal):
    return range(HEADER, len(wal), FRAME + PAGE)


def test_the_whole_wal_is_no_damage(killed, damaged):
    """W-1: untouched, the log of the killed process verifies."""
    assert not damaged("nothing", Path(f"{killed}-wal").read_bytes())


@FULL
def test_bits_of_the_wal(killed, damaged, full):
    """W-2: a flipped bit in each byte of the header, in each frame's header, and in pages as they are drawn."""
    wal = Path(f"{killed}-wal").read_bytes()
    places = set(range(HEADER))
    for start in frames(wal):
        places |= set(range(start, start + FRAME)) if full else {start + 1, start + 7, start + 12, start + 20}
    places |= set(range(len(wal))) if full else set(random.Random(2).sample(range(len(wal)), 200))
    noticed = sum(
        damaged(f"bit in byte {at}", wal[:at] + bytes([wal[at] ^ (1 << at % 8)]) + wal[at + 1 :])
        for at in sorted(places)
    )
    print(f"{len(places)} bits flipped, {noticed} noticed")
    assert noticed > len(places) // 2


@FULL
def test_truncations_of_the_wal(killed, damaged, full):
    """W-3: cut at, before and behind each frame, anywhere, to nothing, or lengthened."""
    wal = Path(f"{killed}-wal").read_bytes()
    sizes = {0, 1, HEADER - 1, HEADER, len(wal) - 1}
    for start in frames(wal):
        sizes |= {start, start + FRAME, start + FRAME + PAGE - 1}
    sizes |= set(range(len(wal))) if full else set(random.Random(3).sample(range(len(wal)), 60))
    noticed = sum(damaged(f"cut to {size}", wal[:size]) for size in sorted(sizes))
    assert noticed > len(sizes) // 2
    for more in (b"\0", bytes(FRAME + PAGE), wal[HEADER : HEADER + FRAME + PAGE]):
        damaged("lengthened", wal + more)


def test_frames_of_the_wal(killed, damaged):
    """W-4: each frame taken out, doubled, or in the place of the next one."""
    wal = Path(f"{killed}-wal").read_bytes()
    size = FRAME + PAGE
    for start in frames(wal):
        frame, following = wal[start : start + size], wal[start + size : start + 2 * size]
        damaged(f"frame at {start} taken out", wal[:start] + wal[start + size :])
        damaged(f"frame at {start} doubled", wal[:start] + frame + wal[start:])
        damaged(f"frames at {start} swapped", wal[:start] + following + frame + wal[start + 2 * size :])
        damaged(f"frame at {start} zeroed", wal[:start] + bytes(size) + wal[start + size :])


def test_no_wal_and_a_strange_one(killed, damaged, tmp_path):
    """W-5: the -wal is missing, empty, noise, or that of another log."""
    copy = copied(killed, tmp_path / "without.db")
    Path(f"{copy}-wal").unlink()
    assert code(copy) != 0
    wal = Path(f"{killed}-wal").read_bytes()
    for name, other in (("empty", b""), ("noise", random.Random(5).randbytes(len(wal))), ("text", b"not a wal" * 99)):
        assert damaged(name, other)

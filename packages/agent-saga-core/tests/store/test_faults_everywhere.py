"""Every call of SQLite to its file system fails in turn, for every N, in every way. Rule ids: V-n."""

import gc
import itertools

import apsw
import pytest
from fault_lab import ACTS, Ledger, check, prepare
from faulty import FaultyVfs

from agent_saga.errors import SagaError, SagaSuspended

ERRORS = {
    "locked": apsw.BusyError,
    "full": apsw.FullError,
    "I/O": apsw.IOError,
    "read-only": apsw.ReadOnlyError,
    "corrupt": apsw.CorruptError,
    "no place": apsw.CantOpenError,
}
names = itertools.count()

# SQLite ignores some errors while it closes after another one; Python then reports what our VFS raised.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*could not be (settled|recorded):RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("agent_saga.store.sqlite.WAIT_TO_READ_S", 0.02)


@pytest.fixture(autouse=True, scope="module")
def small_wal():
    """Checkpoints belong to what may fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent_saga.store.sqlite_writer.CHECKPOINT_PAGES", 4)
        yield


def tried(act, folder, *, error=None, after=0, once=False):
    """Do an act on a disk that fails; return how many operations it took, and whether one failed."""
    place = prepare(act, folder)
    vfs = FaultyVfs(f"faulty-{next(names)}")
    place.vfs = vfs.name
    if error is not None:
        vfs.faults.fail("any", after=after, error=error, once=once)
    said = f"{place.path} is fine"
    try:
        ACTS[act](place)
    except (SagaError, SagaSuspended) as failure:
        said = str(failure)
    assert len(said) > 20
    assert "Traceback" not in said
    seen, hit = vfs.faults.seen, vfs.faults.hit
    vfs.faults.heal()
    gc.collect()
    check(place)
    vfs.unregister()
    return seen, hit


WHOLE = [pytest.mark.exhaustive, pytest.mark.timeout(7200)]
EVERY_ERROR = [pytest.param(name, marks=WHOLE) for name in ERRORS]


@pytest.mark.parametrize("once", [True, False], ids=["once", "from then on"])
@pytest.mark.parametrize("error", ["each in turn", *EVERY_ERROR])
@pytest.mark.parametrize("act", ACTS)
def test_whichever_call_fails(tmp_path, act, error, once):
    """V-1: no false clean, no effect lost, what was said is so, an error for people; and no hang."""
    whole = error in ERRORS
    errors = itertools.cycle([ERRORS[error]] if whole else ERRORS.values())
    for after in itertools.count(0, 1 if once or whole else 5):  # 5 and the number of errors have no common divisor.
        _, hit = tried(act, tmp_path / f"{after}", error=next(errors), after=after, once=once)
        if not hit:
            break
    print(f"{act}, {error}: {after} calls failed in turn")
    assert after > 10


@pytest.mark.parametrize("act", ACTS)
def test_a_good_disk_fails_nothing(tmp_path, act):
    """V-2: without a fault each act does all of its work: a suite that fails everywhere would prove nothing."""
    seen, hit = tried(act, tmp_path / "good")
    print(act, seen)
    assert (seen > 10, hit) == (True, 0)
    if act == "lives":
        assert set(Ledger.standing) == {"flight"}
    if act == "recovers":
        assert Ledger.standing == {}

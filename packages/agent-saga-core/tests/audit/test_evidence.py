"""Proofs, anchors and certificates of a log that holds every kind of saga. Rule ids: EV-n."""

import copy
import json

import pytest

from agent_saga.audit.anchor import check_anchor
from agent_saga.audit.certify import certify, certify_rollback_safety
from agent_saga.audit.leaves import checkpoint_of, leaves_of
from agent_saga.audit.note import sign, verifier_of
from agent_saga.audit.proof import check_proof, prove
from agent_saga.errors import BadEvidence, CorruptLog, LogMissing, UsageError
from agent_saga.machine.report import report_of
from agent_saga.runtime.signatures import make_key
from agent_saga.store.memory import MemoryLog
from agent_saga.store.reader import load
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import all_rows
from pytest_agent_saga.conformance.sagas import committed, everything

PRIVATE, _ = make_key()
NAME = "a.example/log"


@pytest.fixture
def log():
    store = everything(MemoryLog())
    yield store
    store.close()


def sealed(store):
    return [stored.saga_id for stored in all_rows(store) if stored.row.sealed]


def test_every_sealed_saga_is_proved(log):
    """EV-1: the proof of each sealed saga holds, and gives the same report as the log."""
    note = sign(checkpoint_of(log).text(), NAME, PRIVATE)
    verifier = verifier_of(NAME, PRIVATE)
    assert len(sealed(log)) > 5
    for saga_id in sealed(log):
        document = json.loads(json.dumps(prove(log, saga_id, note=note)))
        proven = check_proof(document, verifier=verifier)
        assert proven.signed_by == NAME
        assert report_of(proven.view) == report_of(load(log, saga_id).view)


def test_an_unsealed_saga_is_not_proved(log):
    """EV-2: a saga that is not sealed has no proof, and the message says why."""
    for stored in all_rows(log):
        if not stored.row.sealed:
            with pytest.raises(UsageError, match="not sealed"):
                prove(log, stored.saga_id)
    with pytest.raises(UsageError, match="no saga"):
        prove(log, "0" * 26)


def damaged(document):
    """Yield a document for each record left out, doubled, swapped or changed, and for each other field changed."""
    parts = [document["saga"], *document["amendments"]]
    for number, part in enumerate(parts):
        for index in range(len(part["records"])):
            for edit in ("drop", "double", "body", "swap"):
                bad = copy.deepcopy(document)
                records = [bad["saga"], *bad["amendments"]][number]["records"]
                if edit == "drop":
                    del records[index]
                elif edit == "double":
                    records.insert(index, records[index])
                elif edit == "swap":
                    records[index - 1], records[index] = records[index], records[index - 1]
                    if len(records) == 1:
                        continue
                else:
                    records[index]["body"] = records[index]["body"].replace('"at":', '"at":1')
                yield edit, bad
            for name in part["records"][index]["values"]:
                bad = copy.deepcopy(document)
                [bad["saga"], *bad["amendments"]][number]["records"][index]["values"][name][1] = '"other"'
                yield name, bad
        for field, value in (("id", "0" * 26), ("leaf", part["leaf"] + 1), ("leaf", 0), ("path", part["path"][:-1])):
            if part[field] != value:
                bad = copy.deepcopy(document)
                [bad["saga"], *bad["amendments"]][number][field] = value
                yield field, bad
    for number in range(len(document["amendments"])):
        bad = copy.deepcopy(document)
        del bad["amendments"][number]
        yield "amendment", bad


def test_a_changed_proof_does_not_hold(log):
    """EV-3: no record of a proof can be left out, doubled, swapped or changed, and no shown value."""
    tried = 0
    for saga_id in sealed(log):
        whole = prove(log, saga_id)
        for edit, bad in damaged(whole):
            if edit == "amendment" and load(log, saga_id).view.ended and holds(bad):
                continue  # That there are amendments is not a fact of the saga's own leaf: EV-4.
            tried += 1
            assert not holds(bad), (saga_id, edit)
    assert tried > 300


def holds(document):
    try:
        check_proof(document)
    except BadEvidence:
        return False
    return True


def test_an_amendment_that_sealed_the_saga_cannot_be_left_out(log):
    """EV-4: a saga that only an amendment sealed is not proved without it."""
    seen = 0
    for saga_id in sealed(log):
        document = prove(log, saga_id)
        if document["amendments"] and not holds({**document, "amendments": []}):
            seen += 1
    assert seen > 0


def test_withheld_values_are_not_in_the_proof(log):
    """EV-5: a withheld value and its salt are not in the proof, which holds all the same."""
    for saga_id in sealed(log):
        document = prove(log, saga_id, withhold=["*"])
        assert all(not record["values"] for record in document["saga"]["records"])
        whole = check_proof(prove(log, saga_id))
        assert check_proof(document).withheld >= whole.withheld == 0
        assert check_proof(document).view.state is whole.view.state


@pytest.mark.parametrize("junk", [None, [], {}, {"schema": "x"}, {"schema": "agent-saga/proof/1", "saga": 1}])
def test_junk_is_no_proof(junk):
    """EV-6: what is no proof is refused as that."""
    with pytest.raises(BadEvidence):
        check_proof(junk)


def test_a_log_that_grew_extends_its_anchor(log):
    """EV-7: an earlier checkpoint holds for the log that grew since."""
    anchor = checkpoint_of(log)
    committed(log, 90)
    assert check_anchor(log, anchor, leaves_of(log))
    document = prove(log, sealed(log)[-1], note=anchor.text())
    assert check_proof(document, checkpoint=anchor.text()).checkpoint == anchor


def test_a_cut_or_rewritten_log_does_not_extend_its_anchor():
    """EV-8: a log with fewer, other or differently ordered sagas is found by the anchor, undamaged as it looks."""
    numbers = list(range(1, 9))
    log, cut, other = MemoryLog(), MemoryLog(), MemoryLog()
    for number in numbers:
        committed(log, number)
    for number in numbers[:-1]:
        committed(cut, number)
    for number in [2, 1, *numbers[2:]]:
        committed(other, number)
    anchor = checkpoint_of(log)
    for forged, said in ((cut, "tail is gone"), (other, "written anew")):
        forged._log_id = log.log_id()
        with pytest.raises(CorruptLog, match=said):
            check_anchor(forged, anchor, leaves_of(forged))
    with pytest.raises(UsageError, match="of the log"):
        check_anchor(MemoryLog(), anchor, [])


def test_an_anchor_notices_a_cut_of_open_sagas(log):
    """EV-9: the last record of a checkpoint must be there, also when its saga is open."""
    short, grown = MemoryLog(), MemoryLog()
    grown._log_id = short.log_id()
    for store in (short, grown):
        committed(store, 1)
    from pytest_agent_saga.conformance.sagas import Scribe

    Scribe(grown, 2).open()
    with pytest.raises(CorruptLog, match="has a record at position"):
        check_anchor(short, checkpoint_of(grown), leaves_of(short))


def test_the_certificate_names_each_standing_effect(log):
    """EV-10: each effect that stands unaccounted is a finding, and the others are counted."""
    certificate = certify(log)
    assert not certificate.certified
    views = [load(log, stored.saga_id).view for stored in all_rows(log) if stored.row.amends is None]
    left = [(view.id, step.step_id) for view in views if view.ended for step in report_of(view).left]
    found = {(f.saga_id, f"{f.saga_id}:{f.step}") for f in certificate.findings if f.step is not None}
    assert found >= set(left)
    assert json.loads(json.dumps(certificate.to_dict()))["certified"] is False
    assert any("--anchor" in line for line in certificate.not_checked)


def test_a_log_of_good_sagas_is_certified(tmp_path):
    """EV-11: where every effect is accounted for it is certified; an empty, missing or other log is not."""
    log = SqliteLog(tmp_path / "log.db", create=True)
    committed(log, 1)
    anchor = checkpoint_of(log)
    assert certify(log, anchor=anchor).certified
    log.close()
    assert certify_rollback_safety(str(tmp_path / "log.db")).certified
    with pytest.raises(LogMissing):
        certify_rollback_safety(str(tmp_path / "none.db"))
    empty = certify(MemoryLog())
    assert [finding.kind for finding in empty.findings] == ["empty"]


def test_one_saga_is_certified_alone(log):
    """EV-12: a certificate of one saga says that the rest was not checked."""
    for saga_id in sealed(log):
        if load(log, saga_id).view.amends is None:
            certificate = certify(log, saga_id=saga_id)
            assert certificate.sagas == 1
            assert certificate.not_checked[0].startswith("all other sagas")
    with pytest.raises(CorruptLog, match="not in the log"):
        certify(log, saga_id="0" * 26)

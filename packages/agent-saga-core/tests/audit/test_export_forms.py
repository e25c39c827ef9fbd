"""Exports in other forms hold every record. Rule ids: EX-n."""

import csv
import io
import json

from agent_saga.cli.forms import COLUMNS, as_cloudevents, as_csv
from agent_saga.cli.lines import log_lines
from agent_saga.store.memory import MemoryLog
from pytest_agent_saga.conformance.sagas import everything


def test_every_record_is_in_each_form():
    """EX-1: CSV and CloudEvents hold each record whole, in order, under an id of its own."""
    store = everything(MemoryLog())
    records = [json.loads(line) for line in log_lines(store)]
    rows = list(csv.DictReader(io.StringIO(b"".join(as_csv(log_lines(store))).decode(), newline="")))
    assert [json.loads(row["record"]) for row in rows] == records
    assert set(rows[0]) == set(COLUMNS)
    events = [json.loads(event) for event in as_cloudevents(log_lines(store), "ab")]
    assert [event["data"] for event in events] == records
    assert len({(event["source"], event["id"]) for event in events}) == len(records)
    assert all(event["time"].endswith("Z") and event["specversion"] == "1.0" for event in events)


def test_a_formula_is_no_formula():
    """EX-2: a name that a spreadsheet would run is text."""
    line = b'{"pos":1,"saga":"s","n":1,"kind":"decision","at":0,"tool":"=cmd()","hash":"00"}'
    assert b",'=cmd()," in b"".join(as_csv([line]))

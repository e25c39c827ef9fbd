"""Sagas with very many steps: what is drawn, what is counted, and that all of it was checked."""

import sqlite3
import xml.etree.ElementTree as ET

import pytest

from agent_saga import AgentKit, compensator
from agent_saga.store.sqlite import SqliteLog
from agent_saga_visuals.crop import DRAWN, cropped
from agent_saga_visuals.graph import dot, mermaid, svg_graph
from agent_saga_visuals.picture import changes, picture_of

STEPS = 1_200


@compensator("long.forget", version=1)
def forget(number):
    """Take a note back."""


def noted(number):
    """Take a note."""
    return {"number": number}


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "log.db"
    kit = AgentKit(log=str(path))
    note = kit.wrap(noted, name="note", effect="compensable", compensate=forget.bind(number="kwargs.number"))
    with kit.transaction("long") as saga:
        for number in range(STEPS):
            note(number=number)
    kit.close()
    return path, saga.id


def test_the_ends_are_drawn_and_the_rest_is_counted(long):
    """VIS-14: the beginning and the end have their arguments, what is between them is counted, nothing is left out."""
    path, saga_id = long
    log = SqliteLog(path, create=False)
    picture = picture_of(log, saga_id)
    slow, _ = changes(log, saga_id, told=False)
    log.close()
    assert picture == slow
    assert picture.records == 2 * STEPS + 2
    assert [node.no for node in picture.nodes if node.state != "more"] == [
        *range(1, DRAWN + 1),
        *range(STEPS - DRAWN + 1, STEPS + 1),
    ]
    (more,) = [node for node in picture.nodes if node.state == "more"]
    assert (more.no, more.note) == (DRAWN + 1, f"{STEPS - 2 * DRAWN} kept")
    assert picture.nodes[-1].call == f"note(number={STEPS - 1})"
    drawn = svg_graph(picture)
    assert f"{STEPS} kept" in ET.fromstring(drawn).findtext("{http://www.w3.org/2000/svg}desc")
    assert all("960 steps" in one for one in (drawn, mermaid(picture), dot(picture)))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE records SET hash = zeroblob(32) WHERE n = 1000",
        "UPDATE records SET payload = NULL WHERE n = 1000",
        "DELETE FROM records WHERE n = 1000",
        "UPDATE sagas SET work = 1",
    ],
)
def test_damage_in_what_is_not_drawn_is_drawn(long, tmp_path, sql):
    """VIS-15: a record that is not drawn is checked all the same."""
    path, saga_id = long
    copy = tmp_path / "log.db"
    copy.write_bytes(path.read_bytes())
    with sqlite3.connect(copy) as db:
        db.execute("DROP TRIGGER records_keep")
        db.execute("DROP TRIGGER records_stay")
        db.execute(sql)
    db.close()
    log = SqliteLog(copy, create=False)
    picture = picture_of(log, saga_id)
    log.close()
    assert picture.damage is not None
    assert "damaged" in svg_graph(picture)


def test_what_is_left_is_never_hidden():
    """VIS-16: a step whose effect is left is drawn wherever it is; of very many the rest is counted."""
    states = dict.fromkeys(range(1, 2001), "kept") | {777: "orphaned", 1200: "in_doubt"}
    assert {777, 1200} <= {one for one in cropped(states) if isinstance(one, int)}
    hidden = [no for one in cropped(states) if isinstance(one, list) for no in one]
    assert len(hidden) + sum(isinstance(one, int) for one in cropped(states)) == 2000
    assert list(cropped(dict.fromkeys(range(1, 10), "kept"))) == list(range(1, 10))

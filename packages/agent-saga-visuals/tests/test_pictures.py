"""What the pictures say is what the fold says; damage is drawn as damage. Rule ids: VIS-n."""

import re
import sqlite3
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from agent_saga import AgentKit, compensator
from agent_saga.machine.report import report_of
from agent_saga.model.report import BUCKETS
from agent_saga.store.memory import MemoryLog
from agent_saga.store.reader import load
from agent_saga.store.sqlite import SqliteLog
from agent_saga.store.verify import all_rows
from agent_saga_visuals.animate import animation
from agent_saga_visuals.chain import chain_damage, links, svg_chain
from agent_saga_visuals.fleet import cells, svg_fleet
from agent_saga_visuals.graph import dot, mermaid, svg_graph
from agent_saga_visuals.looks import LOOKS
from agent_saga_visuals.outcomes import svg_outcomes, tallies
from agent_saga_visuals.picture import changes, frames, picture_of
from agent_saga_visuals.replay import frame_lines, page
from agent_saga_visuals.svg import INK
from pytest_agent_saga.conformance.sagas import Scribe

GOLDEN = Path(__file__).parent / "golden"
SVG = "{http://www.w3.org/2000/svg}"


def ids(store):
    return [row.saga_id for row in all_rows(store)]


def pictures(store):
    """Every picture of a log, by name."""
    drawn = {
        "fleet.svg": svg_fleet(cells(store, limit=100), more=False),
        "outcomes.svg": svg_outcomes(*tallies(store, limit=100)),
    }
    for saga_id in ids(store):
        picture, told = changes(store, saga_id)
        drawn[f"{saga_id}.svg"] = svg_graph(picture)
        drawn[f"{saga_id}-moving.svg"] = animation(picture, told)
        found = links(store, saga_id)
        drawn[f"{saga_id}-chain.svg"] = svg_chain(saga_id, found, chain_damage(store, saga_id, found))
        drawn[f"{saga_id}.mmd"], drawn[f"{saga_id}.dot"] = mermaid(picture), dot(picture)
        drawn[f"{saga_id}.html"] = page(frames(store, saga_id))
    return drawn


def test_a_picture_shows_each_bucket_of_the_report(store):
    """VIS-1: for every saga, the nodes of each state are the steps of that bucket in the report of the fold."""
    for saga_id in ids(store):
        view = load(store, saga_id).view
        picture = picture_of(store, saga_id)
        assert picture.damage is None
        report = report_of(view)
        for bucket in BUCKETS:
            there = [step.step_id.rpartition(":")[2] for step in getattr(report, bucket)]
            drawn = [
                str(node.no)
                for node in picture.nodes
                if node.state in {bucket, "standing" if bucket == "kept" else bucket}
            ]
            assert drawn == there, (saga_id, bucket)


def test_every_state_has_its_own_shape_word_and_glyph():
    """VIS-2: no two states share a shape in any format, a word or a glyph."""
    from agent_saga_visuals.svg import outline

    for told in (
        [look.word for look in LOOKS.values()],
        [look.glyph for look in LOOKS.values()],
        [look.mermaid for look in LOOKS.values()],
        [look.dot for look in LOOKS.values()],
        [(outline(state, 0, 0, 90, 30), look.dashed) for state, look in LOOKS.items()],
    ):
        assert len(set(told)) == len(LOOKS)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast(theme):
    """VIS-3: text has a contrast of 4.5 on the page and in every node, lines one of 3 on the page (WCAG 2, AA)."""
    paper, ink, faint = INK[theme]
    assert contrast(paper, ink) > 4.5
    assert contrast(paper, faint) > 4.5
    for state, look in LOOKS.items():
        fill, line = getattr(look, theme)
        assert contrast(fill, ink) > 4.5, state
        assert contrast(paper, line) > 3, state


def test_all_pictures_are_xml_without_scripts_and_the_same_each_time(store):
    """VIS-4: well-formed, titled, self-contained, deterministic."""
    first, second = pictures(store), pictures(store)
    assert first == second
    for name, drawn in first.items():
        assert "<script" not in drawn
        assert not re.search(r'(href|src)\s*=\s*"?(?!#)', drawn), name
        if name.endswith(".svg"):
            root = ET.fromstring(drawn)
            assert root.get("role") == "img"
            assert root.findtext(f"{SVG}title")
            assert root.findtext(f"{SVG}desc")
    ET.fromstring(
        first[f"{ids(store)[0]}.html"]
        .replace("<!doctype html>", "")
        .replace('<meta charset="utf-8">', "")
        .replace('<meta name="viewport" content="width=device-width">', "")
    )


def test_the_pictures_are_those_that_were_looked_at(store):
    """VIS-5: a saga with every state, the fleet and the outcomes are byte for byte what a person looked at."""
    drawn = pictures(store)
    richest = max(ids(store), key=lambda saga: len({node.state for node in picture_of(store, saga).nodes}))
    for name, picture in (
        ("graph.svg", drawn[f"{richest}.svg"]),
        ("fleet.svg", drawn["fleet.svg"]),
        ("outcomes.svg", drawn["outcomes.svg"]),
        ("graph.mmd", drawn[f"{richest}.mmd"]),
        ("graph.dot", drawn[f"{richest}.dot"]),
    ):
        file = GOLDEN / name
        if not file.exists():
            file.write_text(picture)
        assert picture == file.read_text("utf-8"), f"look at the new picture, then delete {file} and run this again"


NASTY = [
    '"><script>alert(1)</script>',
    "a\nb\x1b[2J\x00",
    "]]>",
    "--> x",
    '"];evil',
    "\ud800",
    "#quot; `x` {{}} ((",
    "\u202eright",
]


@pytest.mark.parametrize("name", NASTY)
def test_names_cannot_break_out(name, tmp_path):
    """VIS-6: tools and arguments with any characters stay text in every format."""
    kit = AgentKit(log=str(tmp_path / "log.db"))
    tool = kit.wrap(lambda text: None, name="\ufffd" if "\ud800" in name else name, effect="read_only")
    pay = kit.wrap(lambda text: None, name="pay", effect="compensable", compensate=nothing.bind(text="kwargs.text"))
    with pytest.raises(ValueError, match="."), kit.transaction("\ufffd" if "\ud800" in name else name):
        tool(name)
        pay(name)
        raise ValueError(f"because {name}")
    store = SqliteLog(tmp_path / "log.db", create=False)
    for shown, drawn in pictures(store).items():
        assert "<script" not in drawn or shown.endswith(".dot")  # In DOT it is quoted text.
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn
        if shown.endswith(".svg"):
            ET.fromstring(drawn)
        if shown.endswith(".mmd"):
            assert all(line.count('"') in {0, 2} for line in drawn.splitlines())
    store.close()


@compensator("visuals.nothing", idempotent=True)
def nothing(text: str) -> None:
    pass


def doctored(path, sql, *bindings):
    connection = sqlite3.connect(path)
    for trigger in ("records_keep", "records_stay"):
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute(sql, bindings)
    connection.commit()
    connection.close()
    return SqliteLog(path, create=False)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE records SET body = CAST(replace(body, '\"n\":2', '\"n\":3') AS BLOB) WHERE saga = ? AND n = 2",
        "DELETE FROM records WHERE saga = ? AND n = 2",
        "DELETE FROM records WHERE saga = ? AND n = (SELECT count FROM sagas WHERE sagas.saga = records.saga)",
        "UPDATE records SET hash = zeroblob(32) WHERE saga = ? AND n = 1",
        "UPDATE records SET payload = NULL WHERE saga = ? AND n = 2",
        "UPDATE sagas SET state = 'committed', work = 0 WHERE saga = ?",
    ],
)
def test_damage_is_drawn_as_damage(path, store, sql):
    """VIS-7: after each edit the graph, the chain and the fleet show the damage, and nothing after it looks intact."""
    saga_id = next(s for s in ids(store) if load(store, s).view.state == "rolled_back" and load(store, s).row.count > 5)
    store.close()
    log = doctored(path, sql, saga_id)
    picture = picture_of(log, saga_id)
    assert picture.damage is not None
    assert "damaged" in svg_graph(picture)
    assert LOOKS["damaged"].mermaid[0] in mermaid(picture)
    found = links(log, saga_id)
    damage = chain_damage(log, saga_id, found)
    assert damage
    assert "DAMAGED" in svg_chain(saga_id, found, damage)
    broken = next((i for i, link in enumerate(found) if link.broken), len(found))
    assert all(link.after_break for link in found[broken + 1 :])
    assert {cell.saga_id for cell in cells(log, limit=100) if cell.word == "damaged"} >= {saga_id}
    assert tallies(log, limit=100)[1] >= 1
    last = list(frames(log, saga_id))[-1]
    assert last.picture.damage is not None
    assert "nothing after this record was read" in "\n".join(frame_lines(last, 1, None))
    log.close()


def test_a_cropped_chain_keeps_every_break():
    """VIS-8: of 400 records the breaks are shown wherever they are, and what is left out is counted."""
    store = MemoryLog()
    scribe = Scribe(store, 1).open()
    for step in range(1, 200):
        scribe.step(step)
    scribe.end()
    found = links(store, scribe.id)
    whole = svg_chain(scribe.id, found, [])
    assert "352 more" in whole or re.search(r"\d+ more", whole)
    from dataclasses import replace

    found[150] = replace(found[150], broken="changed")
    assert "151 broken" in svg_chain(scribe.id, found, ["record 151: changed"])


def test_few_observations_are_grey_and_counted(store):
    """VIS-9: below five calls there is no bar, only the number."""
    from collections import Counter

    drawn = svg_outcomes({"few": Counter(kept=4), "many": Counter(kept=4, failed=1)}, 0)
    assert "4 calls: 4 kept" in drawn
    assert "4/5" in drawn
    assert "4/4" not in drawn


def test_the_replay_ends_where_the_picture_is(store):
    """VIS-10: the last frame of a replay is the picture, and each frame is the fold so far."""
    for saga_id in ids(store):
        told = list(frames(store, saga_id))
        assert told[-1].picture == picture_of(store, saga_id)
        assert [frame.picture.records for frame in told] == list(range(1, len(told) + 1))


def test_the_animation_is_whole_without_motion(store):
    """VIS-11: every node of the graph is in the animation, only style rules inside a motion query hide any of them."""
    for saga_id in ids(store):
        picture, told = changes(store, saga_id)
        drawn = animation(picture, told)
        css = drawn.partition("<style>")[2].partition("</style>")[0]
        outside = re.sub(
            r"@media \(prefers-reduced-motion:no-preference\)\{.*?\}\}\}?(?=@media)", "", css, flags=re.DOTALL
        )
        assert "animation" not in outside
        assert "@media (prefers-reduced-motion:reduce)" in css
        for node in picture.nodes:
            assert f'id="s{node.no}"' in drawn

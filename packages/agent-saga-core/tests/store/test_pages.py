"""A page of records checked at once says what checking each of them says: the same records, or the same damage."""

import hashlib

import pytest
from msgspec import structs

from agent_saga import AgentKit, compensator
from agent_saga.errors import CorruptLog
from agent_saga.model.records import GENESIS, encode_body
from agent_saga.store.reader import check_each, check_page

STEPS = 3


@compensator("pages.refund", version=1, idempotent=True)
def refund(charge_id):
    pass


@pytest.fixture(scope="module")
def page():
    kit = AgentKit("memory:")
    charge = kit.wrap(
        lambda customer, amount: {"id": f"ch_{amount}", "of": customer},
        name="pages.charge",
        effect="compensable",
        compensate=refund.bind(charge_id="result.id"),
    )
    with kit.transaction("pages") as saga:
        for number in range(STEPS):
            charge(customer="cus_1", amount=number)
    return tuple(kit.writer().store.records(saga.id))


def said(check, page):
    """What was yielded, and the damage named after it."""
    found = []
    try:
        found.extend(check(page, GENESIS, 1))
    except CorruptLog as error:
        return found, str(error)
    return found, None


def agree(page):
    each = said(check_each, page)
    assert said(check_page, page) == each
    return each[1]


def put(page, place, **changes):
    return (*page[:place], structs.replace(page[place], **changes), *page[place + 1 :])


def rehashed(page):
    """The same bodies under a chain that fits them: what is wrong has to be found in the bodies and payloads."""
    head, made = GENESIS, []
    for stored in page:
        head = hashlib.sha256(head + stored.body).digest()
        made.append(structs.replace(stored, hash=head))
    return tuple(made)


def test_an_undamaged_page(page):
    """Both give every record, and name no damage."""
    assert agree(page) is None
    assert len(said(check_page, page)[0]) == 2 + 2 * STEPS


def test_no_records():
    """A page may be empty."""
    assert agree(()) is None


@pytest.mark.parametrize("chain", [tuple, rehashed], ids=["as-it-was", "made-anew"])
@pytest.mark.parametrize("field", ["body", "payload"])
def test_every_byte(page, field, chain):
    """A changed byte is damage to both, or a value that both show."""
    for place, stored in enumerate(page):
        data = getattr(stored, field)
        for at in range(len(data or b"")):
            agree(chain(put(page, place, **{field: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]})))


@pytest.mark.parametrize("field", ["body", "payload"])
def test_lines_divided_elsewhere(page, field):
    """What two records hold, moved across their border, is not read as two records."""
    first, second = getattr(page[1], field), getattr(page[2], field)
    joined = first + b"\n" + second
    for one, other in ((joined, b""), (b"", joined), (first + b"\n", second), (joined[:5], joined[5:])):
        moved = put(put(page, 1, **{field: one}), 2, **{field: other})
        assert agree(rehashed(moved)) is not None


def test_spellings(page):
    """A payload has one spelling: salts in lower case without spaces, each of its own, names in order, none twice."""
    payload = page[1].payload
    (first, (salt, text)), (second, (other, more)) = _entries(payload)
    for entries in (
        {first: (salt.upper(), text), second: (other, more)},
        {first: (f"{salt[:2]} {salt[2:]}", text), second: (other, more)},
        {first: (salt + other[:2], text), second: (other[2:], more)},
        {second: (other, more), first: (salt, text)},
        {first: (salt, text)},
        {},
    ):
        assert agree(put(page, 1, payload=encode_body(entries))) is not None
    assert agree(put(page, 1, payload=payload[:-1] + b',"x":["00","1"]}')) is not None


def _entries(payload):
    import json

    return list(json.loads(payload).items())


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 3},
        {"n": "2"},
        {"pos": 7},
        {"pos": None},
        {"saga_id": "another"},
        {"payload": None},
        {"payload": "text"},
        {"body": "text"},
        {"body": None},
        {"hash": b""},
        {"hash": None},
    ],
    ids=repr,
)
def test_columns(page, changes):
    """A column that says something else than the body is damage to both."""
    assert agree(put(page, 1, **changes)) is not None


def test_records_missing_swapped_and_twice(page):
    """Neither passes over a gap, an exchange or a repetition."""
    for wrong in (page[1:], (page[1], page[0], *page[2:]), (*page[:2], *page[1:]), (*page[:2], *page[3:])):
        assert agree(wrong) is not None

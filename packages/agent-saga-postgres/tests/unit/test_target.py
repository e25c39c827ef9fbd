"""A log's URL: what it names, and that no secret of it is ever shown."""

import pytest

from agent_saga import AgentKit
from agent_saga.errors import LogFailed, LogUnusable
from agent_saga.store.open import open_log, shown
from agent_saga_postgres.target import parse, without_secrets

SECRET = "hunter2-s3cret"


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://db/app", "postgresql://db/app"),
        ("postgres://ann@db:5433/app", "postgresql://ann@db:5433/app"),
        (f"postgresql://ann:{SECRET}@db/app", "postgresql://ann@db/app"),
        (f"postgresql://db/app?user=ann&password={SECRET}", "postgresql://ann@db/app"),
        (
            f"postgresql://ann:{SECRET}%40x@db/app?sslpassword={SECRET}&sslmode=require",
            "postgresql://ann@db/app?sslmode=require",
        ),
        (
            "postgresql://a,b:5433/app?target_session_attrs=read-write",
            "postgresql://a,b:5433/app?target_session_attrs=read-write",
        ),
        ("postgresql:///app?host=/run/pg&schema=mine", "postgresql:///app?host=/run/pg&schema=mine"),
    ],
)
def test_the_location_has_no_secrets_and_names_the_same_log(url, location):
    """PG-20: what people see opens the same log, once a password comes from elsewhere."""
    target = parse(url)
    assert target.location == location
    assert SECRET not in target.location
    assert SECRET not in repr(target)
    again = parse(target.location)
    assert {k: v for k, v in target.conninfo.items() if "password" not in k} == again.conninfo


def test_our_own_parameters():
    """PG-21: `schema`, `lease_ttl_s` and `wait_s` are ours; libpq never sees them."""
    target = parse("postgresql://db/app?schema=x&lease_ttl_s=2.5&wait_s=7&connect_timeout=3")
    assert (target.schema, target.lease_ttl_s, target.wait_s) == ("x", 2.5, 7.0)
    assert target.conninfo == {"host": "db", "dbname": "app", "connect_timeout": "3"}


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}%zz@db/app",
        f"postgresql://ann:{SECRET}@db/app?nonsense=1",
        f"postgresql://ann:{SECRET}@[db/app",
        f"postgresql://ann:{SECRET}@db/app?lease_ttl_s=soon",
        f"postgresql://ann:{SECRET}@db/app?wait_s=0",
        f"postgresql://ann:{SECRET}@db/app?lease_ttl_s=nan",
        f"postgresql://ann:{SECRET}@db/app?schema=",
        f"postgresql://ann:{SECRET}@db/app?schema=pg_catalog",
        f"postgresql://ann:{SECRET}@db/app?{SECRET}",
    ],
)
def test_what_cannot_be_read_is_not_repeated(url):
    """PG-22: a URL that is no URL of a log is refused, without a word of what it holds."""
    with pytest.raises(LogUnusable) as caught:
        open_log(url, create=True)
    told = (
        str(caught.value)
        + repr(caught.value.__cause__)
        + repr(caught.value.__context__ if not caught.value.__suppress_context__ else "")
    )
    assert SECRET not in told


def test_a_server_that_is_not_there(tmp_path):
    """PG-23: the error names host and port, and no password; a log that was never reached is not waited for."""
    url = f"postgresql://ann:{SECRET}@127.0.0.1:1/app"
    with pytest.raises(LogUnusable) as caught:
        open_log(url, create=False)
    assert "127.0.0.1" in str(caught.value)
    assert SECRET not in str(caught.value)
    kit = AgentKit(url)
    assert not kit.status().ready
    assert SECRET not in repr(kit.status()) + repr(kit.guarantees())
    with pytest.raises(LogFailed) as failed:
        kit.writer().store.owner()
    assert SECRET not in str(failed.value)
    kit.close()


def test_messages_lose_their_secrets():
    """PG-24: what a server or a library says is shown without what we connected with, in any spelling."""
    target = parse("postgresql://ann:a%20b%2Fc@db/app")
    assert without_secrets("it was 'a b/c' or a%20b/c or a%20b%2Fc", target).count("a b") == 0


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("./agent-saga.db", "./agent-saga.db"),
        ("memory:", "memory:"),
        (f"postgresql://ann:{SECRET}@db/app?schema=x", "postgresql://ann@db/app?schema=x"),
        (f"postgresql://ann:{SECRET}@x@db/app", "postgresql://ann@db/app"),
        (f"postgresql://db/app?password={SECRET}", "postgresql://db/app"),
        (f"postgresql://db/app?sslPassword={SECRET}", "postgresql://db/app"),
    ],
)
def test_a_name_as_people_may_see_it(url, seen):
    """PG-25: what a kit shows of its log's name before anything is opened."""
    assert shown(url) == seen

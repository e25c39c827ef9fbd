"""The fixture `saga_postgres`: a real server, for everybody, that leaves nothing behind. Rule ids: PT-n."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from pytest_agent_saga.postgres import EXISTING, PostgresServer, test_server

LAST_S = 30.0
RUN = """
from pytest_agent_saga.postgres import PostgresServer
import psycopg, sys
with PostgresServer.started() as server:
    with psycopg.connect(server.url) as connection:
        print(server.url, connection.execute("SHOW data_directory").fetchone()[0], flush=True)
    sys.stdin.readline()
"""


def version(url):
    with psycopg.connect(url) as connection:
        return connection.execute("SHOW server_version_num").fetchone()


def gone(url, folder):
    """Wait until a server does not answer and its folder is removed; nobody is left who could tell us."""
    pause = threading.Event()
    for _ in range(int(LAST_S / 0.05)):
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            if not Path(folder).exists():
                return True
        pause.wait(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_nothing(number):
    """PT-40: however its tests end, the server stops and its files are removed."""
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        url, folder = run.stdout.readline().split()
        run.send_signal(number)
        run.wait()
    assert gone(url, Path(folder).parent)


def test_each_test_has_a_database_of_its_own(saga_postgres, saga_postgres_url):
    """PT-41: it is empty, and others do not see it once it is dropped."""
    other = saga_postgres.database()
    with psycopg.connect(saga_postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
    assert other != saga_postgres_url
    saga_postgres.drop(other)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(other)


def test_a_server_that_is_killed_and_started_keeps_its_data():
    """PT-42: `kill`, `stop` and `start`, on the same port."""
    with PostgresServer.started() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept(no int)")
        for end in (server.kill, server.stop):
            end()
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(server.url)
            server.start()
            with psycopg.connect(server.url) as connection:
                assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_an_existing_server_is_used_and_never_killed(saga_postgres, monkeypatch):
    """PT-43: the URL in the environment counts; what is not ours is not stopped."""
    monkeypatch.setenv(EXISTING, saga_postgres.url)
    with test_server() as server:
        assert (server.url, server.is_ours) == (saga_postgres.url, False)
        url = server.database()
        assert version(url) == version(saga_postgres.url)
        server.drop(url)
        with pytest.raises(RuntimeError, match="not ours to kill"):
            server.kill()


def test_it_does_not_run_as_root():
    """PT-44: PostgreSQL refuses to; its processes belong to somebody who may not do everything."""
    with PostgresServer.started() as server, psycopg.connect(server.url) as connection:
        pid = connection.info.backend_pid
        assert Path(f"/proc/{pid}").stat().st_uid == (os.getuid() or 65534)

"""The pytest plug-in: fixtures, and how conformance suites are collected, run and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent_saga import AgentKit
from pytest_agent_saga.clock import FakeClock
from pytest_agent_saga.conformance.report import Reporter
from pytest_agent_saga.conformance.suite import Suite, Variant
from pytest_agent_saga.crash import CrashRunner
from pytest_agent_saga.proof import assert_rollback_proven as _assert_rollback_proven
from pytest_agent_saga.replay import assert_replays as _assert_replays
from pytest_agent_saga.strikes import Chaos, chaos

if TYPE_CHECKING:
    from pytest_agent_saga.postgres import PostgresServer

# -- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def saga_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a log for this test alone; kits without `log=` that are made meanwhile use it too."""
    path = str(tmp_path / "agent-saga.db")
    monkeypatch.setenv("AGENT_SAGA_LOG", path)
    return path


@pytest.fixture
def saga_kit(saga_log: str) -> Iterator[AgentKit]:
    """A kit on `saga_log`, closed at the end."""
    kit = AgentKit(log=saga_log, allow_fs=True)
    yield kit
    kit.close()


@pytest.fixture
def saga_clock() -> Iterator[FakeClock]:
    """A clock that stands still until the test moves it; the engine's own is put back at the end."""
    with FakeClock().installed() as clock:
        yield clock


@pytest.fixture
def saga_crash(saga_log: str, tmp_path: Path) -> CrashRunner:
    """Runs a program in a process that is killed, and recovers in another one."""
    return CrashRunner(log=saga_log, folder=tmp_path)


@pytest.fixture
def saga_chaos(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return `chaos`, with what it did shown when the test fails."""

    def tell(done: Chaos) -> None:
        request.node.add_report_section("call", "agent-saga chaos", done.format_text())

    return lambda *args, **options: chaos(*args, tell=tell, **options)


@pytest.fixture
def assert_rollback_proven() -> Callable[..., Any]:
    """The function of the same name."""
    return _assert_rollback_proven


@pytest.fixture
def assert_replays() -> Callable[..., Any]:
    """The function of the same name."""
    return _assert_replays


@pytest.fixture(scope="session")
def saga_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for this test session; see `pytest_agent_saga.postgres`."""
    from pytest_agent_saga.postgres import test_server

    with test_server() as server:
        yield server


@pytest.fixture
def saga_postgres_url(saga_postgres: PostgresServer) -> Iterator[str]:
    """The URL of a new database on `saga_postgres`, dropped at the end."""
    url = saga_postgres.database()
    yield url
    saga_postgres.drop(url)


# -- conformance suites -----------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the report."""
    parser.getgroup("agent-saga").addoption(
        "--conformance-report", metavar="FILE", help="write what each conformance suite found to this JSON file"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Write the report in the process that has all results."""
    target = config.getoption("--conformance-report")
    if target and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporter(Path(target)), "agent-saga-conformance-report")


def _rule_of(function: Any) -> Any:
    return getattr(function, "__rule__", None)


def _suite_of(item: pytest.Item) -> type[Suite[Any]] | None:
    cls = getattr(item, "cls", None)
    return cls if isinstance(cls, type) and issubclass(cls, Suite) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try each rule in each of its ways."""
    cls = metafunc.cls
    if cls is None or not issubclass(cls, Suite) or "case" not in metafunc.fixturenames:
        return
    known = _rule_of(metafunc.function) or cls.rules().get(metafunc.function.__name__)
    variants = [Variant()] if known is None else cls().plan(known)
    ids = [variant.name or "rule" for variant in variants]
    metafunc.parametrize("case", variants, ids=ids, indirect=True)


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """What a rule of a conformance suite works with."""
    variant: Variant = request.param
    if variant.gap is not None:
        yield None
        return
    with request.instance.case(tmp_path, variant) as made:
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """A rule that needs what is not declared is reported as a gap; the guard checks that it is explained."""
    variant = _variant_of(pyfuncitem)
    return True if variant is not None and variant.gap is not None else None


def _variant_of(item: pytest.Item) -> Variant | None:
    spec = getattr(item, "callspec", None)
    value = None if spec is None or _suite_of(item) is None else spec.params.get("case")
    return value if isinstance(value, Variant) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse to skip a rule, and note what each test stands for."""
    for item in items:
        cls = _suite_of(item)
        if cls is None:
            continue
        if any(item.get_closest_marker(name) for name in ("skip", "skipif")):
            raise pytest.UsageError(
                f"{item.nodeid}: a rule of a conformance suite cannot be skipped; declare the gap, or mark the rule "
                "xfail(strict=True, reason=...)"
            )
        known = cls.rules().get(getattr(item, "originalname", item.name))
        variant = _variant_of(item)
        if known is not None:
            item.user_properties.append(
                (
                    "agent_saga_rule",
                    {
                        "suite": f"{cls.__module__}.{cls.__qualname__}",
                        "rule": known.id,
                        "text": known.text,
                        "variant": "" if variant is None else variant.name,
                        "gap": None if variant is None else variant.gap,
                    },
                )
            )

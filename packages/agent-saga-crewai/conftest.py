"""CrewAI without telemetry and without a home: what it stores goes into the test's own folder."""

import os
import warnings
from pathlib import Path

import pytest

HERE = Path(__file__).parent

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ImportWarning)  # crewai.rag replaces itself in sys.modules while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)  # In what CrewAI imports.
    import crewai.flow
    import crewai.flow.persistence  # noqa: F401


@pytest.fixture(autouse=True)
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "crewai-data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


FRAMEWORK = (  # CrewAI reads its own deprecated fields.
    "ignore:deprecated$:DeprecationWarning",
    "ignore:function_calling_llm is deprecated:DeprecationWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for each in FRAMEWORK:
                item.add_marker(pytest.mark.filterwarnings(each))

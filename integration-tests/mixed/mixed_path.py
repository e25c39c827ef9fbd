"""Makes the adapters' test models importable, and keeps the frameworks from calling home. Imported first."""

import os
import sys
from pathlib import Path

for name in ("crewai", "langgraph", "openai-agents", "llama-index", "semantic-kernel", "autogen"):
    sys.path.append(str(Path(__file__).parents[2] / "packages" / f"agent-saga-{name}" / "tests"))
os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

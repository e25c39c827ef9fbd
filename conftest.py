"""Runs the Python examples of README, docs and docstrings as tests, each document in an empty folder."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sybil import Sybil
from sybil.document import PythonDocStringDocument
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

HOME = Path(__file__).parent


def enter_empty_folder(namespace: dict[str, Any]) -> None:
    """Gives a document's examples a module name of their own and a folder to write to."""
    namespace["__name__"] = "example"
    namespace["folder"] = tempfile.TemporaryDirectory()
    os.chdir(namespace["folder"].name)


def leave_folder(namespace: dict[str, Any]) -> None:
    os.chdir(HOME)
    namespace["folder"].cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["*.md", "src/*/*.py", "src/*/*/*.py"],
    document_types={".py": PythonDocStringDocument},
    setup=enter_empty_folder,
    teardown=leave_folder,
).pytest()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, SybilItem):
            item.add_marker("example")

"""Loading the modules that define compensators, probes and verifiers: only those that the operator names."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent_saga.cli.terminal import visible
from agent_saga.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_SETTINGS: Final = "pyproject.toml"
_MESSAGE_LENGTH_MAX: Final = 500


def load_handlers(names: Iterable[str]) -> list[str]:
    """Import what `--import` names, and what `[tool.agent-saga] imports` in ./pyproject.toml names.

    What the modules print goes to stderr: stdout is the command's own.

    Args:
        names: modules (`shop.tools`, looked for in the working directory first) or files (`./tools.py`).

    Returns:
        All names, those of pyproject.toml first.

    Raises:
        UsageError: one cannot be imported; the message has the module's own error in one line.
    """
    every = [*_configured(Path(_SETTINGS)), *names]
    if every:
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
    for name in dict.fromkeys(every):
        with contextlib.redirect_stdout(sys.stderr):
            _load(name)
    return list(dict.fromkeys(every))


def _configured(path: Path) -> list[str]:
    imports = settings(path).get("imports", [])
    if not isinstance(imports, list) or not all(isinstance(name, str) for name in imports):
        raise UsageError(f"{path.absolute()}: [tool.agent-saga] imports must be a list of modules or ./files.py")
    return imports


def settings(path: Path = Path(_SETTINGS)) -> dict[str, Any]:
    """Return `[tool.agent-saga]` of ./pyproject.toml, its numbers exact; empty where there is none.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path.absolute()} cannot be read: {error}") from error
    if "agent-saga" not in text:
        return {}
    import tomllib
    from decimal import Decimal

    try:
        found = tomllib.loads(text, parse_float=Decimal).get("tool", {}).get("agent-saga", {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path.absolute()} is not valid TOML: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path.absolute()}: [tool.agent-saga] must be a table")
    return found


def _load(name: str) -> None:
    file = Path(name) if name.endswith(".py") or "/" in name else None
    if file is not None and not file.is_file():
        raise UsageError(f"--import {visible(name, length_max=None)}: there is no such file ({file.resolve()})")
    try:
        if file is None:
            importlib.import_module(name)
        else:
            _load_file(file)
    except (Exception, SystemExit) as error:
        raise UsageError(_why(name, error)) from error


def _load_file(path: Path) -> ModuleType:
    """Import a file under its own name, as if it were run from its folder; once, also when a module imported it."""
    place = path.resolve()
    for known in list(sys.modules.values()):
        file = getattr(known, "__file__", None)
        if isinstance(file, str) and Path(file).name == place.name and Path(file).resolve() == place:
            return known
    if str(place.parent) not in sys.path:
        sys.path.insert(0, str(place.parent))
    name = place.stem if place.stem not in sys.modules else f"agent_saga_import_{place.stem}"
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None:
        raise ImportError("this is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _why(name: str, error: BaseException) -> str:
    """Return the module's own error in one line, with the line of the user's code that raised it."""
    said = visible(f"{type(error).__name__}: {error}", length_max=_MESSAGE_LENGTH_MAX)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename != __file__ and "importlib" not in frame.filename
    ]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
        hint = f"; it was looked for in {Path.cwd()} and in this Python's packages"
    return f"--import {visible(name)}: {said}{where}{hint}"

"""The packages of the workspace are released together, so they must agree with one another and with the root."""

import configparser
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text("utf-8"))


WORKSPACE = read(ROOT / "pyproject.toml")
PROJECTS = {file.parent: read(file)["project"] for file in sorted(ROOT.glob("packages/*/pyproject.toml"))}
EACH = pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)


def requirements(project: dict[str, Any]) -> list[str]:
    """Returns what a package requires, its extras included."""
    return sum(project.get("optional-dependencies", {}).values(), start=[*project.get("dependencies", [])])


def name_of(requirement: str) -> str:
    return re.split(r"[\[=<>!~ ;]", requirement)[0].lower().replace("_", "-")


def test_all_versions_are_equal() -> None:
    """WS-01: the packages have one version."""
    assert len({project["version"] for project in PROJECTS.values()}) == 1


def test_every_requirement_has_a_pin() -> None:
    """WS-07: constraints.txt names all that the packages and the tools ask for."""
    pinned = {name_of(line) for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()}
    ours = {project["name"] for project in PROJECTS.values()}
    wanted = {name_of(each) for project in PROJECTS.values() for each in requirements(project)}
    assert wanted | {name_of(each) for each in WORKSPACE["dependency-groups"]["tools"]} <= pinned | ours


@EACH
def test_siblings_are_pinned_to_the_same_version(folder: Path) -> None:
    """WS-02: a package requires another one of the workspace in exactly the common version."""
    names = {project["name"] for project in PROJECTS.values()}
    siblings = {wanted for wanted in requirements(PROJECTS[folder]) if name_of(wanted) in names}
    assert {wanted for wanted in siblings if not wanted.endswith(f"=={PROJECTS[folder]['version']}")} == set()


@EACH
def test_the_root_knows_the_package_with_all_its_extras(folder: Path) -> None:
    """WS-03: the environment holds every package and extra, and none of ours ever comes from a registry."""
    name, extras = PROJECTS[folder]["name"], sorted(PROJECTS[folder].get("optional-dependencies", {}))
    assert folder.name == name
    assert (f"{name}[{','.join(extras)}]" if extras else name) in WORKSPACE["dependency-groups"]["packages"]
    assert WORKSPACE["tool"]["uv"]["sources"][name] == {"workspace": True}


@EACH
def test_every_third_party_requirement_has_a_lower_bound(folder: Path) -> None:
    """WS-04: `scripts/test-adapter NAME --lowest` has something to go down to."""
    assert [wanted for wanted in requirements(PROJECTS[folder]) if not re.search(r"[>=]=", wanted)] == []


@EACH
def test_the_package_carries_the_licence(folder: Path) -> None:
    """WS-05: each wheel brings the text of LICENSE; uv_build follows no symlinks, so it is a copy."""
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@EACH
def test_the_change_log_has_the_version(folder: Path) -> None:
    """WS-06: CHANGELOG.md has a section for the common version."""
    assert re.search(
        rf"^## {re.escape(PROJECTS[folder]['version'])}\b", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )


@EACH
def test_every_contract_covers_the_package(folder: Path) -> None:
    """WS-08: a new package is under the contracts that keep test code out of the product."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", "utf-8")
    for module in (file.parent.name for file in folder.glob("src/*/__init__.py")):
        assert module in contracts["importlinter"]["root_packages"].split()
        if module in {"agent_saga", "pytest_agent_saga"}:
            continue
        for contract in ("tests-only", "product-does-not-test"):
            assert module in contracts[f"importlinter:contract:{contract}"]["source_modules"].split()


def test_every_part_of_the_core_is_product_or_test() -> None:
    """WS-09: a new part of agent_saga may not import agent_saga.testing unseen."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", "utf-8")
    product = contracts["importlinter:contract:product-does-not-test"]["source_modules"].split()
    core = ROOT / "packages" / "agent-saga-core" / "src" / "agent_saga"
    parts = {file.stem for file in core.iterdir() if file.suffix == ".py" or (file / "__init__.py").exists()}
    assert {f"agent_saga.{part}" for part in parts - {"__init__", "__main__", "testing"}} <= set(product)


def test_pages_name_the_version_of_what_strangers_have() -> None:
    """WS-10: strangers have packages named pytest-agent-saga and agent-saga, and pip takes the highest version."""
    version = PROJECTS[ROOT / "packages" / "agent-saga-core"]["version"]
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")]
    for page in pages:
        for line in page.read_text("utf-8").splitlines():
            command = line.split("  #")[0]
            for found in re.findall(
                r"\bpip install\b.*?(pytest-agent-saga(?:\[\w+\])?|agent-saga(?![-\w]))(\S*)", command
            ):
                assert found[1].startswith(f"~={version}"), f"{page.relative_to(ROOT)}: {line}"

"""The README says what is so: its output, its example, its tests and its packages are compared with the real ones."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md"))]
STRONG = re.compile(r"\b(never|always|exactly|guarantee\w*)\b", re.IGNORECASE)
TEST_LINK = re.compile(r"\[`(test_\w+)`\]\(([\w/.-]+\.py)\)")


def table_under(heading: str) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    section = README.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def block(language: str, containing: str) -> str:
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in text)
    return found


def test_it_is_short() -> None:
    """README-1: at most 160 lines, and no section is missing or out of order."""
    assert len(README.splitlines()) <= 160
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "The demo",
        "An example",
        "Promised",
        "Not promised",
        "Packages",
        "When not to use it",
        "More",
    ]


def test_it_begins_with_the_commands() -> None:
    """README-2: after the first sentence come the commands, which are programs that exist."""
    first = README.partition("```console\n")[2].partition("```")[0]
    commands = re.findall(r"^\$ (\S.*?)\s*(?:#.*)?$", first, re.MULTILINE)
    assert commands == ["scripts/demo", "scripts/test", "pip install agent-saga-core"]
    assert README.index("scripts/demo") < README.index("## ")
    assert [(ROOT / command).stat().st_mode & 0o111 != 0 for command in commands[:2]] == [True, True]


def masked(text: str) -> str:
    return re.sub(r"process \d+ *", "process N ", text)


def test_the_output_is_the_demos(shown: tuple[str, Path]) -> None:
    """README-3: the output is that of the demo, up to the commands for the log that it keeps; process ids differ."""
    acts = shown[0].partition("\nNext,")[0]
    assert masked(block("console", "agent-saga demo")) == masked(f"$ agent-saga demo --fast\n{acts}")


def test_the_example_runs(tmp_path: Path) -> None:
    """README-4: at most 12 lines of code, which run as a program, without warnings, and print what they say."""
    example = block("python", "AgentKit")
    assert len([line for line in example.splitlines() if line.strip()]) <= 12
    (tmp_path / "example.py").write_text(example)
    command = [sys.executable, "-W", "error", "-c", "import example"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == re.findall(r"#> (.*)$", example, re.MULTILINE)


def test_as_much_is_not_promised_as_is() -> None:
    """README-5: the two tables are of equal size."""
    assert len(table_under("Promised")) == len(table_under("Not promised")) > 5


def test_each_promise_names_a_test() -> None:
    """README-6: each promise has a link to a test."""
    assert [row for row in table_under("Promised") if TEST_LINK.search(row[1]) is None] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.parent.name)
def test_strong_words_name_a_test(document: Path) -> None:
    """README-7: a line with never, always, exactly or the like names a test beside it."""
    prose = re.sub(r"```.*?```|`[^`\n]*\(\)`", "", document.read_text("utf-8"), flags=re.DOTALL)
    assert [line for line in prose.splitlines() if STRONG.search(line) and not TEST_LINK.search(line)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.parent.name)
def test_the_tests_that_it_names_exist(document: Path) -> None:
    """README-8: each test that is named is in the file that is named."""
    for name, place in TEST_LINK.findall(document.read_text("utf-8")):
        assert re.search(rf"^(async )?def {name}\(", (document.parent / place).read_text("utf-8"), re.MULTILINE), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.parent.name)
def test_its_links_lead_somewhere(document: Path) -> None:
    """README-9: each link into the repository names a file or folder that is there."""
    places = re.findall(r"\]\(([^):#]+)[^)]*\)", document.read_text("utf-8"))
    assert [place for place in places if not (document.parent / place).exists()] == []


def test_the_packages_are_those_of_the_workspace() -> None:
    """README-10: the table has a row for each folder of packages/, with the description in its pyproject.toml."""
    projects = [tomllib.loads(file.read_text("utf-8"))["project"] for file in ROOT.glob("packages/*/pyproject.toml")]
    rows = {re.sub(r"[`\[]|\].*", "", row[0]): row[1] for row in table_under("Packages")}
    assert rows == {project["name"]: project["description"] for project in projects}

"""Projects that stand in one text each, with the tools that a human found in them."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "projects"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))


class Bundle:
    """One project: its files, the tools that are in it, and how many hooks belong into which file."""

    def __init__(self, name):
        text = (FOLDER / f"{name}.txt").read_text("utf-8")
        parts = re.split(r"^### (.+)\n", text, flags=re.MULTILINE)[1:]
        sections = dict(zip(parts[::2], parts[1::2], strict=True))
        self.truth = {tuple(line.split()) for line in sections.pop("TRUTH").splitlines()}
        self.hooks = {p: int(n) for p, n in (line.split() for line in sections.pop("HOOKS").splitlines())}
        sections.pop("README")
        self.files = sections

    def write(self, folder):
        """Write the project into a folder."""
        for path, text in self.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
        return folder

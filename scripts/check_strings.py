"""Checks that no committed file names a package registry, a path of one machine, or the place where it was written.

Such names break on the reader's machine: constraints.txt carries the pins without addresses.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {  # Written so that no pattern matches itself.
    "host of a package registry": r"pypi[.]org|pythonhosted[.]org|npmjs[.]org|yarnpkg[.]com|deb[.]debian[.]org"
    r"|proxy[.]golang[.]org|crates[.]io",
    "path of one machine": r"(?<![\w.~-])/(?:root|work|home|Users|opt/(?:wheels|pypi))/[\w.]|[.]pyenv/",
    "name of a workplace": r"[.]library\b|[.][.]/shared/|\bshared/(?:DESIGN|STYLE|prototypes|hooks)|seed-[0-9a-f]{8}",
}


def main() -> None:
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = [ROOT / name for name in names if (ROOT / name).is_file()]
    findings = [
        f"{file.relative_to(ROOT)}:{number}: {what}: {found[0]}"
        for file in files
        for number, line in enumerate(file.read_text("utf-8", errors="replace").splitlines(), start=1)
        for what, pattern in FORBIDDEN.items()
        if (found := re.search(pattern, line))
    ]
    print(*findings, f"{len(files)} files, {len(findings)} findings", sep="\n")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


def sh(command, folder):
    return subprocess.run(["bash", "-c", command], cwd=folder, check=True, capture_output=True, text=True).stdout


def world(root):
    """Everything beneath a folder, read by other means than the product's: objects of git by what git says of them."""
    found = {}
    for folder, folders, files in os.walk(root):
        if folder.endswith("/objects") and Path(folder, "../HEAD").exists():
            folders.clear()
            continue
        for name in [*folders, *files]:
            path = Path(folder, name)
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                what = str(path.readlink())
            elif stat.S_ISREG(status.st_mode):
                what = (path.read_bytes(), status.st_mtime_ns)
            else:
                what = ""
            found[os.path.relpath(path, root)] = (oct(status.st_mode), what)
    return found


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A repository of two commits, two branches, a stash, an index, uncommitted, untracked and ignored files."""
    work = tmp_path_factory.mktemp("template") / "work"
    work.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in GIT.items():
            patch.setenv(name, value)
        sh(
            """git init -q -b main . && printf 'one\n' > a.txt && printf '*.log\n' > .gitignore && mkdir sub \
        && printf 'deep\n' > sub/b.txt && git add . && git commit -qm first \
        && git checkout -qb topic && printf 'topic\n' > t.txt && git add . && git commit -qm topic \
        && git checkout -q main && printf 'two\n' >> a.txt && git commit -qam second \
        && printf 'stashed\n' >> a.txt && git stash -q \
        && printf 'staged\n' > staged.txt && git add staged.txt && printf 'uncommitted\n' >> a.txt \
        && printf 'untracked\n' > new.txt && printf 'ignored\n' > debug.log && chmod 640 new.txt \
        && ln -s a.txt link && ln new.txt twin && mkdir empty && touch -d 2020-01-02 sub/b.txt""",
            work,
        )
    return work


@pytest.fixture
def place(template, tmp_path, monkeypatch):
    """A copy of the template, times and hard links included."""
    for name, value in GIT.items():
        monkeypatch.setenv(name, value)
    sh(f"cp -a {template} .", tmp_path)
    return tmp_path / "work"

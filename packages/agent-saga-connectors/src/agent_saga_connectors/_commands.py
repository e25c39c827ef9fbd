"""Says what a shell command may change: nothing, something beneath the roots, or something that cannot be taken back.

A list of what is known, not of what is dangerous: a program, option or spelling that is not here is refused.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent_saga import GateRefused
from agent_saga_connectors._parse import NotUnderstood, Simple, Word, parse

if TYPE_CHECKING:
    from collections.abc import Iterable


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


READERS: Final = _words(
    "ls cat head tail grep egrep fgrep wc pwd echo printf true false test [ stat du df which whoami id basename dirname"
    " realpath readlink cmp diff cut tr nl tac rev md5sum sha1sum sha256sum seq sleep"
)
WRITERS: Final = _words("rm rmdir unlink mv cp mkdir touch truncate chmod ln tee sed")
GIT: Final = _words(
    "add am apply blame branch cat-file checkout cherry-pick clean commit describe diff gc grep log ls-files ls-tree"
    " merge mv notes prune rebase reflog reset restore rev-parse revert rm shortlog show stash status switch"
    " symbolic-ref tag update-ref"
)
WRAPPERS: Final = {"command": 0, "nice": 0, "timeout": 1}
SHELLS: Final = _words("sh bash dash")
SAFE_VARIABLES: Final = _words("LANG LC_ALL TZ NO_COLOR TERM CI GIT_AUTHOR_DATE GIT_COMMITTER_DATE")
_FOLLOWS: Final = ("L", "H")
_SED: Final = re.compile(
    r"(?:(?:\d+|\$|/[^/\\]*/)(?:,(?:\d+|\$|/[^/\\]*/))?)?"
    r"(?:[dp]|s(?P<mark>[/|#,:])(?:(?!(?P=mark))[^\\\n]|\\.)*(?P=mark)(?:(?!(?P=mark))[^\\\n]|\\.)*(?P=mark)[gpIi0-9]*)"
)
_WHY: Final = {
    "sudo": "it gains other rights",
    "doas": "it gains other rights",
    "su": "it gains other rights",
    "dd": "it may write to a device, which has no pre-image",
    "kill": "a process that ended cannot be brought back",
    "pkill": "a process that ended cannot be brought back",
    "killall": "a process that ended cannot be brought back",
    "eval": "it runs a text that is known only then",
    "source": "it runs a file",
    ".": "it runs a file",
    "xargs": "it passes on what it reads to a program that changes things",
}


class CommandRefused(GateRefused):
    """A command was not run: it could do what has no compensation, or it is not understood. Nothing happened."""


@dataclass(slots=True)
class Place:
    """Where a command runs.

    Attributes:
        roots: absolute, resolved folders; all that may change lies beneath one of them.
        folders: every folder that the shell may be in by now: a `cd` may have failed.
        programs: further programs that the operator vouches for.
    """

    roots: tuple[Path, ...]
    folders: set[Path]
    programs: frozenset[str] = field(default_factory=frozenset)

    def holds(self, path: Path) -> bool:
        """Tell whether a resolved path is a root or beneath one."""
        return any(path == root or root in path.parents for root in self.roots)


def changes(command: str, place: Place) -> bool:
    """Return False for a command that changes nothing, True for one that changes only what lies beneath the roots.

    Raises:
        CommandRefused: it may do more than that, or is not understood.
    """
    try:
        commands = parse(command)
    except NotUnderstood as error:
        raise CommandRefused(f"refused, nothing ran: the command has {error}, which is not understood") from None
    if not commands:
        raise CommandRefused("refused, nothing ran: the command is empty")
    linked = any(one.words and one.words[0].text == "ln" for one in commands)
    results = [_simple(one, place) for one in commands]
    if linked and sum(results) > 1:
        raise _refusal("ln", "a link made here may lead the rest of the command elsewhere: make it alone")
    return any(results)


def _refusal(what: str, why: str) -> CommandRefused:
    return CommandRefused(f"refused, nothing ran: {what!r}: {why}")


def _simple(one: Simple, place: Place) -> bool:
    for name in one.assignments:
        if name not in SAFE_VARIABLES:
            raise _refusal(f"{name}=", "a variable may change what programs do")
    changed = False
    for operator, target in one.redirects:
        changed = _redirect(operator, target, place) or changed
    return (_run(one.words, place) if one.words else False) or changed


def _redirect(operator: str, target: Word, place: Place) -> bool:
    if operator in {"<", "<<", "<<-", "<<<"}:
        return False
    if operator in {">&", "<&"} and target.known and (target.text.isdigit() or target.text == "-"):
        return False
    if target.known and target.text == "/dev/null":
        return False
    _check_path(operator, target, place, into_git=False)
    return True


def _run(words: list[Word], place: Place) -> bool:
    program, arguments = words[0], words[1:]
    name = program.text
    if not program.known or (program.glob and name != "["):
        raise _refusal(name or "$...", "which program this is is known only when it runs")
    if name in READERS:
        return False
    if name in WRITERS:
        return _writer(name, arguments, place)
    known = {"git": _git, "find": _find, "cd": _cd}.get(name)
    if known is not None:
        return known(arguments, place)
    if name in WRAPPERS:
        return _wrapped(name, arguments, place)
    if name in SHELLS:
        return _shell(name, arguments, place)
    if name == "xargs" and arguments and arguments[0].known and arguments[0].text in READERS:
        return False
    if name in place.programs:
        return True
    raise _refusal(name, _WHY.get(name, "what this program does is not known; see `programs=`"))


def _wrapped(name: str, arguments: list[Word], place: Place) -> bool:
    rest = arguments[WRAPPERS[name] :]
    if not rest or any(word.text.startswith("-") for word in arguments[: WRAPPERS[name] + 1]):
        raise _refusal(name, "its options are not known here")
    return _run(rest, place)


def _shell(name: str, arguments: list[Word], place: Place) -> bool:
    if len(arguments) != 2 or arguments[0].text != "-c" or not arguments[1].known:  # noqa: PLR2004 - `-c` and its text.
        raise _refusal(name, "it runs what it reads; only `-c` with a text that is written out is understood")
    return changes(arguments[1].text, place)


def _cd(arguments: list[Word], place: Place) -> bool:
    if len(arguments) != 1 or arguments[0].text.startswith("-"):
        raise _refusal("cd", "only `cd FOLDER` is understood")
    if arguments[0].glob:
        raise _refusal("cd", "a pattern is not understood here")
    _check_path("cd", arguments[0], place)
    place.folders |= {_resolved(folder, arguments[0].text) for folder in place.folders}
    return False


def _writer(name: str, arguments: list[Word], place: Place) -> bool:
    operands = _operands(name, arguments, place)
    if name == "sed":
        operands = _sed(arguments, operands)
    for word in operands:
        _check_path(name, word, place, removes=name in {"rm", "rmdir", "mv", "unlink"}, into_git=name == "rm")
    if name == "ln" and any(word.text.startswith(("-s", "--sym")) for word in arguments):
        _check_link(operands, place)
    return True


def _operands(name: str, arguments: list[Word], place: Place) -> list[Word]:
    """Return the words that may be paths, after looking at the options, whose values may be paths as well."""
    operands, ended = [], False
    for word in arguments:
        if ended or not word.text.startswith("-") or word.text == "-":
            operands.append(word)
            continue
        ended = word.text == "--"
        if not word.known:
            raise _refusal(name, "an option has an expansion")
        option, equals, value = word.text.partition("=")
        if equals:
            _check_path(name, Word(text=value), place, into_git=False)
        elif "/" in option:
            raise _refusal(name, f"the option {option!r} holds a path")
        if option.startswith(("--deref", "--no-preserve-root", "--files0", "--ref", "--expr", "--file")):
            raise _refusal(name, f"the option {option!r} is not known here")
        if not option.startswith("--") and any(letter in option for letter in _FOLLOWS):
            raise _refusal(name, f"the option {option!r} follows links")
    return operands


def _sed(arguments: list[Word], operands: list[Word]) -> list[Word]:
    """The script of sed may write files and run programs: `w`, `e`. Known forms only."""
    for word in arguments:
        if word.text.startswith("-") and not re.fullmatch(r"-[nEri]{1,4}|-i\.\w+|--in-place", word.text):
            raise _refusal("sed", f"the option {word.text!r} is not known here")
    if not operands or not operands[0].known or not _SED.fullmatch(operands[0].text):
        raise _refusal("sed", "only one script of the forms `s/a/b/g`, `3d` and `/x/p` is understood")
    return operands[1:]


def _check_link(operands: list[Word], place: Place) -> None:
    target, *rest = operands or [Word()]
    for folder in place.folders:
        for base in {folder, *(_resolved(folder, word.text).parent for word in rest)}:
            if not place.holds(_resolved(base, target.text)):
                raise _refusal("ln -s", f"{target.text!r} leads out of the roots")


def _git(arguments: list[Word], place: Place) -> bool:
    folders, rest = set(place.folders), list(arguments)
    while rest and rest[0].text in {"-C", "--no-pager"}:
        if rest.pop(0).text == "-C":
            _check_path("git -C", rest[0] if rest else Word(known=False), place)
            folders = {_resolved(folder, rest[0].text) for folder in folders}
            rest.pop(0)
    verb = rest[0] if rest else Word(text="")
    if verb.text == "push":
        raise _refusal(
            "git push", "it changes a remote; the tool `git_push` records what was there, and can put it back"
        )
    if not verb.known or verb.text not in GIT:
        raise _refusal(f"git {verb.text}", "what it does cannot be taken back, or is not known here")
    for word in rest[1:]:
        text = word.text
        if not word.known and not text and verb.text == "clean":
            raise _refusal("git", "an argument is known only when it runs")
        if text.startswith(("--ex", "-x", "-i", "--int", "--op", "-O", "--unsafe")) and verb.text in {
            *("rebase", "grep", "apply", "am"),
        }:
            raise _refusal(f"git {verb.text}", f"the option {text!r} may run a program, or write elsewhere")
        if text.startswith("--out"):
            _check_path("git --output", Word(text=text.partition("=")[2], known=word.known), place, into_git=False)
    for folder in folders:
        _check_repository(folder, place)
    return True


def _check_repository(folder: Path, place: Place) -> None:
    """All that git keeps of a repository must lie beneath the roots: worktrees and parents may lie elsewhere."""
    if not folder.is_dir():
        return
    asked = ["git", "-C", str(folder), "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603 - no shell, no user input but a folder.
    for line in answer.stdout.splitlines() if answer.returncode == 0 else ():
        if not place.holds(Path(line).resolve()):
            raise _refusal("git", f"the repository {line!r} lies outside of the roots")


def _find(arguments: list[Word], place: Place) -> bool:
    texts = [word.text for word in arguments]
    if any(
        text in {"-L", "-H", "-follow"} or text.startswith(("-fprint", "-fls", "-ok", "-execdir")) for text in texts
    ):
        raise _refusal("find", "one of its options follows links, writes a file or runs a program there")
    at = next((i for i, text in enumerate(texts) if text.startswith(("-", "(", "!"))), len(texts))
    starts = arguments[:at] or [Word(text=".")]
    changed = "-delete" in texts
    for begin in (i for i, text in enumerate(texts) if text == "-exec"):
        end = next((i for i in range(begin, len(texts)) if texts[i] in {";", "+"}), None)
        if end is None or begin + 1 >= end:
            raise _refusal("find", "-exec without its end")
        inner = [one for word in arguments[begin + 1 : end] for one in (starts if word.text == "{}" else [word])]
        if any("{}" in word.text for word in inner) or inner[0].text in {*SHELLS, "git", "cd", "find"}:
            raise _refusal("find -exec", "this is not understood")
        changed = _run(inner, place) or changed
    for word in starts if changed else ():
        _check_path("find", word, place)
    if not all(word.known for word in arguments):
        raise _refusal("find", "an argument is known only when it runs")
    return changed


def _resolved(folder: Path, text: str) -> Path:
    return Path(os.path.realpath(folder / text))


def _check_path(name: str, word: Word, place: Place, *, removes: bool = False, into_git: bool = True) -> None:
    """Refuse a path that is not known, or that leads (through links too) to where there is no pre-image."""
    if not word.known:
        raise _refusal(name, "a path is known only when it runs")
    if word.glob:
        holder = Word(text=os.path.dirname(word.text) or ".")  # noqa: PTH120 - Path would drop the last slash.
        _check_path(name, holder, place, into_git=into_git)
    for folder in place.folders:
        for text in _matches(folder, word) if word.glob else [word.text]:
            path = folder / text
            places = [Path(os.path.realpath(path))]
            if removes:  # What is removed is the link itself, which lies in a folder that may be linked, too.
                places.append(Path(os.path.realpath(path.parent)) / path.name)
            for found in places:
                if not place.holds(found) or (removes and found in place.roots):
                    raise _refusal(name, f"{text!r} leads to {str(found)!r}, which is not beneath the roots")
                if not into_git and ".git" in found.parts:
                    raise _refusal(name, f"{text!r} is inside of git's own folder, where it might be run later")


def _matches(folder: Path, word: Word) -> Iterable[str]:
    if word.quoted or glob.has_magic(os.path.dirname(word.text)):  # noqa: PTH120 - Path would drop the last slash.
        raise _refusal(word.text, "a pattern with quotes, or in the middle of a path, is not understood")
    return glob.glob(word.text, root_dir=folder, include_hidden=True)  # noqa: PTH207 - as the shell sees it.

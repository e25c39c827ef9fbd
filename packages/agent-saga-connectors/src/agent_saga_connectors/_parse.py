"""Reads a shell command line into simple commands; what it does not understand it refuses, and never guesses.

A part of POSIX shell: words, quotes, expansions, pipelines, lists, redirections, subshells, here-documents. Keywords,
functions, background jobs and process substitution are not read, so a command with one of them is refused.
`shlex` alone would split `a>b`, `$(c)` and here-documents wrongly, and bashlex is GPL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

COMMAND_CHARS_MAX: Final = 20_000
DEPTH_MAX: Final = 8
KEYWORDS: Final = frozenset(
    {"!", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select"}
    | {"then", "time", "until", "while", "{"}
)
_OPERATORS: Final = ("&>>", "<<<", "<<-", "&&", "||", ";;", ">>", "<<", ">&", "<&", "&>", ">|", "<>")
_REDIRECTS: Final = frozenset({">", ">>", "<", "<<", "<<-", "<<<", ">&", "<&", "&>", "&>>", ">|", "<>"})


class NotUnderstood(ValueError):
    """The command has something that this parser does not read; the message names it."""


@dataclass(slots=True)
class Word:
    """One word of a command.

    Attributes:
        text: what it says once quotes are gone; of an expansion, nothing.
        known: it has no expansion, so `text` is all of it.
        glob: it has an unquoted `*`, `?` or `[`.
        quoted: a part of it was quoted.
    """

    text: str = ""
    known: bool = True
    glob: bool = False
    quoted: bool = False


@dataclass(slots=True)
class Simple:
    """A simple command: assignments before it, its words, and its redirections as (operator, target)."""

    assignments: list[str] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirects: list[tuple[str, Word]] = field(default_factory=list)
    piped: bool = False
    subshell: int = 0


def parse(command: str, depth: int = 0) -> list[Simple]:
    """Return every simple command of a command line, those of substitutions and subshells too, in textual order.

    Raises:
        NotUnderstood: something in it is not read; nothing may be concluded about any part of it.
    """
    if len(command) > COMMAND_CHARS_MAX:
        raise NotUnderstood(f"a command of more than {COMMAND_CHARS_MAX} characters")
    if depth > DEPTH_MAX:
        raise NotUnderstood(f"substitutions nested more than {DEPTH_MAX} deep")
    if "\0" in command or "\r" in command:
        raise NotUnderstood("a control character")
    return _Parser(command, depth).run()


class _Parser:
    def __init__(self, text: str, depth: int) -> None:
        self.text, self.at, self.depth = text, 0, depth
        self.found: list[Simple] = []
        self.current = Simple()
        self.heredocs: list[tuple[str, Word]] = []
        self.pending: str | None = None
        self.subshell = 0

    def run(self) -> list[Simple]:
        while self.at < len(self.text):
            self._token()
        self._end()
        if self.subshell:
            raise NotUnderstood("an unclosed '('")
        if self.heredocs:
            raise NotUnderstood("a here-document without its end")
        return self.found

    def _token(self) -> None:
        char = self.text[self.at]
        if char in " \t":
            self.at += 1
        elif self.text.startswith("\\\n", self.at):
            self.at += 2
        elif char == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif char == "\n":
            self.at += 1
            self._end()
            self._bodies()
        elif char in ";&|<>()":
            self._operator()
        else:
            self._add(self._word())

    def _operator(self) -> None:
        operator = next((one for one in _OPERATORS if self.text.startswith(one, self.at)), self.text[self.at])
        self.at += len(operator)
        if operator in _REDIRECTS:
            if self.pending is not None:
                raise NotUnderstood("a redirection without a target")
            if self.text.startswith("(", self.at):
                raise NotUnderstood("a process substitution")
            self.pending = operator
        elif operator == "(":
            if self.current.words or self.current.assignments:
                raise NotUnderstood("a function definition or an array")
            self.subshell += 1
        elif operator == ")":
            self._end()
            self.subshell -= 1
            if self.subshell < 0:
                raise NotUnderstood("an unopened ')'")
        elif operator in {"&&", "||", ";"}:
            self._end()
        elif operator == "|":
            self._end()
            self.current.piped = True
        else:
            raise NotUnderstood(f"{operator!r} (background jobs, |& and case are not read)")

    def _end(self) -> None:
        if self.pending is not None:
            raise NotUnderstood("a redirection without a target")
        if self.current.words or self.current.redirects or self.current.assignments:
            self.current.subshell = self.subshell
            self.found.append(self.current)
        self.current = Simple()

    def _add(self, word: Word) -> None:
        if self.pending is not None:
            operator, self.pending = self.pending, None
            if operator in {"<<", "<<-"}:
                if not word.known or word.glob:
                    raise NotUnderstood("a here-document whose end is not written out")
                self.heredocs.append((operator, word))
            self.current.redirects.append((operator, word))
            return
        follows = self.text[self.at : self.at + 1]
        if word.known and not word.quoted and word.text.isdigit() and follows in {"<", ">"}:
            return  # `2>file`: which stream it is makes no difference here.
        if not self.current.words:
            name, equals, _ = word.text.partition("=")
            if equals and name.isidentifier() and name.isascii():
                self.current.assignments.append(name)
                return
            if not word.quoted and word.known and (word.text in KEYWORDS or word.text == "}"):
                raise NotUnderstood(f"the keyword {word.text!r}")
        self.current.words.append(word)

    def _bodies(self) -> None:
        """Here-documents begin after the line that names them."""
        for operator, end in self.heredocs:
            lines: list[str] = []
            while True:
                if self.at >= len(self.text):
                    raise NotUnderstood("a here-document without its end")
                line, newline, _ = self.text[self.at :].partition("\n")
                self.at += len(line) + len(newline)
                if (line.lstrip("\t") if operator == "<<-" else line) == end.text:
                    break
                lines.append(line)
            if not end.quoted and any(mark in line for line in lines for mark in ("$(", "`")):
                raise NotUnderstood("a command substitution in a here-document")
        self.heredocs = []

    def _word(self) -> Word:
        word = Word()
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|<>()":
            char = self.text[self.at]
            if char == "'":
                word.text += self._until("'")
                word.quoted = True
            elif char == '"':
                self._double(word)
            elif char == "\\":
                word.text += (
                    "" if self.text[self.at + 1 : self.at + 2] == "\n" else self.text[self.at + 1 : self.at + 2]
                )
                word.quoted = True
                self.at += 2
            elif char in "$`":
                self._expansion(word, quoted=False)
            else:
                self._plain(word, char)
        return word

    def _plain(self, word: Word, char: str) -> None:
        if char == "{" and self.text[self.at : self.at + 2] != "{}":
            word.known = False  # `{a,b}`: a brace expansion becomes several words.
        if char == "~" and not word.text:
            word.known = False
        word.glob = word.glob or char in "*?["
        word.text += char
        self.at += 1

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise NotUnderstood("an unclosed quote")
        found = self.text[self.at + 1 : end]
        self.at = end + 1
        return found

    def _double(self, word: Word) -> None:
        word.quoted = True
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in {"$", "`", '"', "\\", "\n"}:
                word.text += "" if self.text[self.at + 1] == "\n" else self.text[self.at + 1]
                self.at += 2
            elif char in "$`":
                self._expansion(word, quoted=True)
            else:
                word.text += char
                self.at += 1
        raise NotUnderstood("an unclosed quote")

    def _expansion(self, word: Word, *, quoted: bool) -> None:
        rest = self.text[self.at :]
        if rest.startswith("$(("):
            raise NotUnderstood("an arithmetic expansion")
        if rest.startswith("$("):
            self._substitution(self._closing())
        elif rest.startswith("`"):
            body = self._until("`")
            if "\\" in body:
                raise NotUnderstood("a backslash within backquotes")
            self._substitution(body)
        elif rest.startswith("${"):
            body = rest[2 : rest.find("}")] if "}" in rest else ""
            if not (body.isidentifier() and body.isascii()):
                raise NotUnderstood(f"the expansion ${{{body}}}")
            self.at += len(body) + 3
        elif rest[1:2] in {"'", '"'} and not quoted:
            raise NotUnderstood(f"{rest[:2]} quoting")
        elif rest[1:2].isalnum() or rest[1:2] in {*"_?#@*!$-"}:
            self.at += 2
            while rest[1:2].isidentifier() and self.text[self.at : self.at + 1].replace("_", "a").isalnum():
                self.at += 1
        else:
            word.text += "$"
            self.at += 1
            return
        word.known = False

    def _substitution(self, body: str) -> None:
        self.found.extend(parse(body, self.depth + 1))

    def _closing(self) -> str:
        """Return the body of `$(...)`. Quotes in it may hide a bracket, so they are skipped as quotes."""
        start = at = self.at + 2
        open_brackets = 1
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char == "'":
                at = self.text.find("'", at + 1)
                if at < 0:
                    break
            elif char == '"' and any(mark in self.text[at + 1 :].partition('"')[0] for mark in ("$(", "`", "\\")):
                raise NotUnderstood("a substitution or backslash within quotes within a substitution")
            elif char == '"':
                at = self.text.find('"', at + 1)
                if at < 0:
                    break
            elif char == "#" or self.text.startswith("<<", at):
                raise NotUnderstood("a comment or here-document within a substitution")
            open_brackets += {"(": 1, ")": -1}.get(char, 0)
            if not open_brackets:
                self.at = at + 1
                return self.text[start:at]
            at += 1
        raise NotUnderstood("an unclosed $(")

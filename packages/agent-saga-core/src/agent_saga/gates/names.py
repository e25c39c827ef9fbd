"""Names in rules: an allow rule matches what it says and nothing else, a deny rule also what imitates it."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re
import unicodedata
from typing import TYPE_CHECKING, Final

from agent_saga.errors import DeclarationError
from agent_saga.gates.confusables import LOOKS_LIKE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TEXT_LENGTH_MAX: Final = 10_000
"""A longer text matches no shell pattern of an allow rule, and every deny rule."""
_CACHED_LENGTH_MAX: Final = 200
_WILD: Final = frozenset("*?[")
_UNKNOWN: Final = "\ufffd"
_AMBIGUOUS: Final = frozenset("1I|!\u0131")
_JOINTS: Final = frozenset("-._:/\\")


def is_pattern(text: str) -> bool:
    """Tell whether `text` is a shell pattern."""
    return not _WILD.isdisjoint(text)


def check_patterns(patterns: Iterable[str] | str, what: str) -> tuple[str, ...]:
    """Return the patterns of a rule as a tuple.

    Raises:
        DeclarationError: there are none, or one is no text.
    """
    listed = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    if not listed or not all(isinstance(pattern, str) and pattern for pattern in listed):
        raise DeclarationError(f"{what} must name at least one text or shell pattern; it is {patterns!r}")
    return listed


def says(patterns: tuple[str, ...], text: str) -> bool:
    """Tell whether one of the patterns is `text`, or is a shell pattern that it matches.

    A shell pattern matches printable ASCII only: what else a `*` could stand for includes invisible characters and
    letters that look like others. A text with such characters must be named in full.
    """
    return (_says_cached if len(text) <= _CACHED_LENGTH_MAX else _says)(patterns, text)


def _says(patterns: tuple[str, ...], text: str) -> bool:
    if text in patterns:
        return True
    plain = len(text) <= TEXT_LENGTH_MAX and text.isascii() and text.isprintable() and text == text.strip()
    return plain and any(is_pattern(pattern) and fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def imitated(patterns: tuple[str, ...], text: str) -> str | None:
    """Return the first pattern that `text` matches or could be mistaken for, or None.

    Case, white space, invisible characters, accents, full-width and mathematical letters, separators, look-alikes of
    other scripts (UTS 39), `0`/`o`, `1`/`l`/`I`, `rn`/`m` make no difference. A character that is neither ASCII nor
    known to look like anything may stand for any one character, or for none.
    """
    return (_imitated_cached if len(text) <= _CACHED_LENGTH_MAX else _imitated)(patterns, text)


def _imitated(patterns: tuple[str, ...], text: str) -> str | None:
    if len(text) > TEXT_LENGTH_MAX:
        return patterns[0]
    return next((pattern for pattern in patterns if _imitates(pattern, text)), None)


def _imitates(pattern: str, text: str) -> bool:
    if text == pattern or fnmatch.fnmatchcase(text, pattern):
        return True
    shapes = {_skeleton(text, *variant) for variant in _VARIANTS}
    return any(overlaps(_tokens(pattern, *variant), shape) for variant in _VARIANTS for shape in shapes)


_says_cached = functools.lru_cache(maxsize=4096)(_says)
_imitated_cached = functools.lru_cache(maxsize=4096)(_imitated)


# -- skeletons -----------------------------------------------------------------------------------------------------

_VARIANTS: Final = tuple(itertools.product("li", ("", "_")))
"""How a reader may take a name: `1` and `I` as `l` or as `i`, white space as nothing or as a separator."""


def _skeleton(text: str, ambiguous: str, space: str) -> str:
    """Return one form in which a reader may take `text`."""
    apart = _decomposed(text)
    mixed = any(char.isascii() and char.isalpha() for char in apart)
    shown = [ambiguous if char in _AMBIGUOUS else _shape(char, space, mixed=mixed) for char in apart]
    return re.sub(f"{_UNKNOWN}+", _UNKNOWN, _joined("".join(shown)))


def _joined(text: str) -> str:
    """Return `text` with pairs that look like one letter replaced, and runs of separators as one."""
    return re.sub("_+", "_", text.replace("rn", "m").replace("vv", "w"))


def _decomposed(text: str) -> str:
    """Return compatibility forms taken apart, without accents and without what is not seen."""
    # Before NFKD too: it turns some look-alikes into letters that look like nothing (the lunate sigma).
    apart = unicodedata.normalize("NFKD", "".join(LOOKS_LIKE.get(char, char) for char in text))
    seen = (char for char in apart if not unicodedata.combining(char) and not _is_invisible(char))
    return "".join(LOOKS_LIKE.get(char, char) for char in seen)


_BLANK_LETTERS: Final = frozenset("\u115f\u1160\u3164\uffa0\u034f\u2800\u17b4\u17b5")


def _is_invisible(char: str) -> bool:
    if char in _BLANK_LETTERS:
        return True
    category = unicodedata.category(char)
    return category in {"Cf", "Mn", "Me", "Cs", "Cn", "Co"} or (category == "Cc" and not char.isspace())


def _shape(char: str, space: str, *, mixed: bool) -> str:
    if char.isspace() or unicodedata.category(char) == "Zs":
        return space
    if char in _JOINTS or unicodedata.category(char) in {"Pd", "Pc"}:
        return "_"
    if char == "0":
        return "o"
    if char.isascii():
        return char.lower()
    folded = char.casefold()
    shape = LOOKS_LIKE.get(folded, folded)
    if shape.isascii():
        return {"0": "o", "1": "l", "-": "_"}.get(shape, shape)
    return shape if _is_of_its_own(shape, mixed=mixed) else _UNKNOWN


_WHOLE_SCRIPTS: Final = ("CYRILLIC", "GREEK", "ARMENIAN", "HEBREW", "ARABIC", "DEVANAGARI", "THAI")


def _is_of_its_own(char: str, *, mixed: bool) -> bool:
    """Tell whether a letter without a look-alike is taken for itself.

    Chinese, Japanese and Korean letters always are; those of smaller scripts where there are no ASCII letters beside
    them, since a single one among those is there to be read as one of them.
    """
    if not char.isalpha():
        return False
    if unicodedata.east_asian_width(char[0]) == "W":
        return True
    return not mixed and unicodedata.name(char[0], "").startswith(_WHOLE_SCRIPTS)


# -- patterns against skeletons ------------------------------------------------------------------------------------


_PARTS: Final = re.compile(r"(\*|\?|\[!?\]?[^\]]*\])")


@functools.lru_cache(maxsize=1024)
def _tokens(pattern: str, ambiguous: str, space: str) -> tuple[Callable[[str], bool] | None, ...]:
    """Return a pattern as tests of one character each of a skeleton; None stands for `*`."""
    tokens: list[Callable[[str], bool] | None] = []
    for part in _PARTS.split(pattern):
        if part == "*":
            tokens.append(None)
        elif part == "?":
            tokens.append(_anything)
        elif part.startswith("[") and len(part) > 1 and part.endswith("]"):
            tokens.append(functools.partial(_in_set, part))
        else:
            tokens += [char.__eq__ for char in _skeleton(part, ambiguous, space)]
    return tuple(tokens)


def _in_set(pattern: str, char: str) -> bool:
    """Tell whether a set such as `[0-9]` has a character that looks like this one."""
    twins = {"o": "oO0", "l": "lL1I|", "i": "iI1"}.get(char, char + char.upper())
    return any(fnmatch.fnmatchcase(twin, pattern) for twin in twins)


def _anything(_char: str) -> bool:
    return True


def overlaps(tokens: tuple[Callable[[str], bool] | None, ...], shape: str) -> bool:
    """Tell whether a pattern can match a skeleton; time is bounded by the product of their lengths."""
    states = _closure({0}, tokens)
    for char in shape:
        states = _closure(_step(states, tokens, char), tokens)
        if not states:
            return False
    return len(tokens) in states


def _closure(states: set[int], tokens: tuple[Callable[[str], bool] | None, ...]) -> set[int]:
    closed = set(states)
    for start in states:
        state = start
        while state < len(tokens) and tokens[state] is None:
            state += 1
            closed.add(state)
    return closed


def _step(states: set[int], tokens: tuple[Callable[[str], bool] | None, ...], char: str) -> set[int]:
    after = set(states) if char == _UNKNOWN else set()
    for state in states:
        if state == len(tokens):
            continue
        test = tokens[state]
        if test is None:
            after.add(state)
        elif char == _UNKNOWN or test(char):
            after.add(state + 1)
    return after

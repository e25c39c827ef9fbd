"""What looks like a secret: names of parameters, and texts of values. It tells where and what kind, never the text.

Digests, UUIDs, commit ids and encoded images look random and are no secrets: what is recognised has the form that an
issuer gave it, stands under the name of a secret, or is as random, and written as, a key of 40 to 80 characters.
"""

from __future__ import annotations

import re
from math import log2
from typing import Final

_NAMES: Final = re.compile(
    r"(?:^|[_\-.])(?:api[_\-]?keys?|passw(?:or)?d|passphrase|secrets?|client[_\-]?secret|authorization|credentials?|"
    r"(?:access|auth|bearer|refresh|session|id)[_\-]?tokens?|private[_\-]?keys?|access[_\-]?keys?|cvv2?|cvc2?|token|pin)$"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PUBLIC: Final = re.compile(r"(?:page|next|prev|continuation|cursor|sync|max|min|public)[_\-]")

_ISSUED: Final = (
    ("AKIA", re.compile(r"\bAKIA[0-9A-Z]{16}\b"), "an AWS access key"),
    ("ASIA", re.compile(r"\bASIA[0-9A-Z]{16}\b"), "an AWS access key"),
    ("k_live_", re.compile(r"\b[sr]k_live_[0-9A-Za-z]{10,}"), "a Stripe key"),
    ("k_test_", re.compile(r"\b[sr]k_test_[0-9A-Za-z]{10,}"), "a Stripe key"),
    ("gh", re.compile(r"\bgh[pousr]_[0-9A-Za-z]{36}"), "a GitHub token"),
    ("github_pat_", re.compile(r"\bgithub_pat_\w{22,}"), "a GitHub token"),
    ("glpat-", re.compile(r"\bglpat-[\w\-]{20}"), "a GitLab token"),
    ("xox", re.compile(r"\bxox[abeoprs]-[\w\-]{10,}"), "a Slack token"),
    ("AIza", re.compile(r"\bAIza[\w\-]{35}"), "a Google API key"),
    ("sk-", re.compile(r"\bsk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9_\-]{20,}"), "a key of a model's provider"),
    ("npm_", re.compile(r"\bnpm_[0-9A-Za-z]{36}"), "an npm token"),
    ("eyJ", re.compile(r"\beyJ[\w\-]{10,}\.eyJ[\w\-]{10,}\.[\w\-]{10,}"), "a JSON Web Token"),
    ("-----BEGIN", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), "a private key"),
    ("earer ", re.compile(r"\b[Bb]earer [\w\-.~+/]{16,}"), "a bearer token"),
    ("://", re.compile(r"://[^/\s:@\"]+:[^/\s@\"]{3,}@"), "a URL with a password"),
)
_RANDOM: Final = re.compile(r"(?<![\w+/=.\-])[A-Za-z0-9+/_\-]{40,80}(?![\w+/=.\-])")
_RANDOM_LENGTH_MIN: Final = 40
_DIGEST_LENGTHS: Final = frozenset({43, 64, 86})
"""Base64 without padding of 32, 48 and 64 bytes: digests."""
_BITS_MIN: Final = 4.4
_TEXT_LENGTH_MIN: Final = 8
_TEXT_LENGTH_MAX: Final = 1 << 16
"""Of longer values the beginning is looked at."""
_KEYED: Final = re.compile(r'"([^"\\]{3,60})":"([^"\\]{4,})"')


def is_secret_name(name: str) -> bool:
    """Tell whether a parameter, or a key of a mapping, is named like a secret."""
    plain = _CAMEL.sub("_", name).lower()
    return _NAMES.search(plain) is not None and _PUBLIC.match(plain) is None


def secret_in(name: str, text: str) -> tuple[str, str] | None:
    """Return where in a value there is what looks like a secret, and what it is; None when nothing does.

    Args:
        name: of the value, as `kwargs.headers`.
        text: its stored text.
    """
    if len(text) < _TEXT_LENGTH_MIN:
        return None
    text = text[:_TEXT_LENGTH_MAX]
    for mark, pattern, kind in _ISSUED:
        if mark in text and pattern.search(text) is not None:
            return name, kind
    if '":"' in text and (key := _secret_key(text)) is not None:
        return f"{name}.{key}", "a value under the name of a secret"
    if len(text) > _RANDOM_LENGTH_MIN and _has_random(text):
        return name, "a long random text, like a key"
    return None


def _secret_key(text: str) -> str | None:
    keys = (found[1] for found in _KEYED.finditer(text))
    return next((key for key in keys if key[0] != "$" and is_secret_name(key)), None)


def _has_random(text: str) -> bool:
    # Most texts have no word as long: divided at spaces and quotes, which is cheaper than the pattern.
    words = text.replace('"', " ").split()
    long = [word for word in words if len(word) >= _RANDOM_LENGTH_MIN]
    return any(_is_random(found[0]) for word in long for found in _RANDOM.finditer(word))


def _is_random(text: str) -> bool:
    kinds = any(map(str.isupper, text)) and any(map(str.islower, text)) and any(map(str.isdigit, text))
    if not kinds or len(text) in _DIGEST_LENGTHS or sum(map(text.count, "-_/")) > len(text) // 8:
        return False
    return -sum(n / len(text) * log2(n / len(text)) for n in map(text.count, set(text))) >= _BITS_MIN

"""Patterns of Go's dialect (RE2, `regexp/syntax`) in Python's.

What differs: flags may be set anywhere and count to the end of the group that they are in, `$` and `\\z` are the very
end of the text, and classes of characters have names inside brackets. `\\p` classes and the flag `U` have no
counterpart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_FLAGS = re.compile(r"\(\?([ims]*(?:-[ims]+)?)\)")
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": "\\t ",
    "digit": "0-9",
    "lower": "a-z",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_NAMED = re.compile(r"\[:(" + "|".join(_CLASSES) + r"):\]")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\(\?[ims]*(?:-[ims]+)?\)|.", re.DOTALL)


def python_pattern(pattern: str) -> str:
    """The same pattern for `re`. What is no pattern in Go does not become one: `re` refuses it."""
    return "".join(_translated(pattern))


def _translated(pattern: str) -> Iterator[str]:
    # Python knows flags from one place on only as a group of their own: it is opened where they are set, closed where
    # the group around them ends, and begun anew in each further alternative.
    scopes: list[list[str]] = [[]]
    for token in (match[0] for match in _TOKEN.finditer(pattern)):
        opened = scopes[-1]
        flags = _FLAGS.fullmatch(token)
        if flags is not None:
            opened.append(f"(?{flags[1]}:")
            yield opened[-1]
        elif token == "(":
            scopes.append([])
            yield token
        elif token == ")" and len(scopes) > 1:
            yield ")" * len(scopes.pop()) + token
        elif token == "|" and opened:
            yield ")" * len(opened) + token + "".join(opened)
        elif token == "$":
            yield token if _is_multiline(scopes) else "\\Z"
        elif token == "\\z":
            yield "\\Z"
        elif token.startswith("["):
            yield _NAMED.sub(lambda match: _CLASSES[match[1]], token)
        else:
            yield token
    yield ")" * sum(len(opened) for opened in scopes[:1])


def _is_multiline(scopes: list[list[str]]) -> bool:
    """Whether the last word about the flag `m` is that it is on."""
    said = [flags.strip("(?:").partition("-") for opened in scopes for flags in opened]
    return next((bool("m" in on) for on, _, off in reversed(said) if "m" in on or "m" in off), False)

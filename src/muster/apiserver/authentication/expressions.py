"""The expressions of an authentication configuration: compiled once when it is loaded, with upstream's types.

`claims` is a map of what the token says; `user` is who it became. Source: apiserver `pkg/authentication/cel`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from muster.api.codec import JSON, Object
from muster.api.expressions import (
    EvaluationFailed,
    Expression,
    ExpressionError,
    NotAnExpression,
    NotSupported,
    compile_expression,
    type_of_expression,
)

Subject = Literal["claims", "user"]

_CLAIMS = """variables:
- name: claims
  type_name: map
  params: [{type_name: string}, {type_name: any}]
"""
_USER = """variables:
- {name: user.username, type_name: string}
- {name: user.uid, type_name: string}
- {name: user.groups, type_name: list, params: [{type_name: string}]}
- name: user.extra
  type_name: map
  params: [{type_name: string}, {type_name: list, params: [{type_name: string}]}]
"""
_DECLARATIONS: dict[Subject, str] = {"claims": _CLAIMS, "user": _USER}

_UNDECLARED = re.compile(r"(ERROR: <input>:)(\d+):(\d+): undeclared reference to '([\w.]+)' \(in container ''\)")
_MARK = "\n | "
_LITERAL = r"""(?P<literal>'[^'\\\n]*'|"[^"\\\n]*")"""
_CONSTANTS = (
    ("matches", re.compile(r"\.matches\(\s*" + _LITERAL + r"\s*\)")),
    ("duration", re.compile(r"(?<![\w.])duration\(\s*" + _LITERAL + r"\s*\)")),
)
_DURATION = re.compile(r"[-+]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[-+]?0")
_QUERY = re.compile(r"\.getQuery\(\)\[[^\]]*\]$")
_GO_LIST = re.compile(r"\.(split|findAll)\($")
_ESCAPED = re.compile(r"\b[A-Za-z_]*__\w+")
_ESCAPES = {"__dot__": ".", "__dash__": "-", "__slash__": "/", "__underscores__": "__"}
_RESERVED = re.compile(
    "true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return|"
    "var|void|while"
)


class CompilationFailed(Exception):
    """An expression cannot be used; the message follows its value in a field error."""


class Compiled(Struct, frozen=True):
    """A compiled expression. `returns_go_list`: its value is a list that upstream does not take for a list of texts."""

    text: str
    expression: Expression
    subject: Subject
    aliases: Mapping[str, str]
    returns_go_list: bool

    def evaluate(self, value: Object) -> JSON:
        """The value for these claims or this user. Raises `EvaluationFailed` and `NotSupported`."""
        try:
            return self.expression.evaluate({self.subject: _aliased(value, self.aliases) if self.aliases else value})
        except ExpressionError as error:
            if isinstance(error, NotSupported) and "form in JSON" in str(error):
                raise
            raise EvaluationFailed(f"expression '{self.text}' resulted in error: {error}") from error

    def selects(self, name: str) -> bool:
        """Whether the text selects this claim, as `claims.NAME` or `claims.?NAME`."""
        return re.search(rf"\bclaims\s*\.\s*\??\s*{name}\b", self.text) is not None


def compile_for(text: str, subject: Subject, *, must_be_bool: bool) -> Compiled:
    """The compiled expression. Raises `CompilationFailed`."""
    source = _without_repeated_parentheses(text)
    try:
        type_ = _checked_type(source, subject)
        compiled = compile_expression(source, (subject,))
    except ExpressionError as error:
        raise CompilationFailed(f"compilation failed: {error}") from error
    if must_be_bool and type_ != "BOOL":
        raise CompilationFailed("must evaluate to bool")
    return Compiled(text, compiled, subject, _aliases(text), _ends_in_go_list(text))


def _without_repeated_parentheses(text: str) -> str:
    """A text that is deeper in parentheses than the library goes, without those that only repeat others."""
    if "(" * 16 not in text or "'" in text or '"' in text:
        return text
    partner: dict[int, int] = {}
    open_: list[int] = []
    for at, mark in enumerate(text):
        if mark == "(":
            open_.append(at)
        elif mark == ")" and open_:
            partner[open_.pop()] = at
    repeated = [at for at, end in partner.items() if partner.get(at + 1) == end - 1]
    gone = {*repeated, *(partner[at] for at in repeated)}
    return "".join(mark for at, mark in enumerate(text) if at not in gone)


def _checked_type(text: str, subject: Subject) -> str:
    # Names that this library lacks are told apart from those that nobody knows.
    try:
        type_ = type_of_expression(text, _DECLARATIONS[subject])
    except NotAnExpression as error:
        try:
            compile_expression(text, ("claims", "user"))
        except NotSupported:
            raise
        except ExpressionError:
            pass
        message = _as_cel_go(str(error), text, subject)
        if subject == "user" and "undeclared reference to 'user'" in message:
            return "BOOL" if _is_has(text) else "DYN"  # `user` as a whole is beyond the check
        raise NotAnExpression(message) from error
    for name, pattern in _CONSTANTS:
        for found in pattern.finditer(text):
            if not _is_constant_of(name, found["literal"][1:-1]):
                raise NotAnExpression(_error_at(text, found.start("literal"), f"invalid {name} argument"))
    return type_


def _is_has(text: str) -> bool:
    return text.lstrip("! ").startswith("has(user.")


def _is_constant_of(name: str, value: str) -> bool:
    if name == "duration":
        return _DURATION.fullmatch(value) is not None
    try:
        re.compile(value)
    except re.error:
        return False
    return True


def _error_at(text: str, at: int, message: str) -> str:
    """An error in the form of cel-go: the place, the line and a mark under it."""
    line = text.count("\n", 0, at)
    column = at - (text.rfind("\n", 0, at) + 1)
    return f"ERROR: <input>:{line + 1}:{column + 1}: {message}{_MARK}{text.splitlines()[line]}{_MARK}{'.' * column}^"


def _as_cel_go(message: str, text: str, subject: Subject) -> str:
    """Errors about names with dots in cel-go's words: it looks at the first part of a name first."""
    parts = re.split(r"\n(?=ERROR: )", message)
    return "\n".join(dict.fromkeys(_about_a_name(part, text, subject) for part in parts))


def _about_a_name(part: str, text: str, subject: Subject) -> str:
    found = _UNDECLARED.match(part)
    if found is None or "." not in found[4]:
        return part
    lines = text.splitlines()
    line, column = int(found[2]), int(found[3]) - 1
    before = sum(len(each) + 1 for each in lines[: line - 1])
    root, _, rest = found[4].partition(".")
    if root == subject == "user":
        field = rest.split(".")[0]
        dot = text.rfind(f".{field}", 0, before + column + len(field) + 1)
        return _error_at(text, max(dot, 0), f"undefined field '{field}'")
    start = text.rfind(root, 0, before + column + 1)
    return _error_at(text, max(start, 0), f"undeclared reference to '{root}' (in container '')")


def _ends_in_go_list(text: str) -> bool:
    """Whether the outermost call is one whose list of texts upstream does not recognise as such."""
    stripped = text.rstrip()
    if _QUERY.search(stripped):
        return True
    if not stripped.endswith(")"):
        return False
    depth = 0
    for at in range(len(stripped) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(stripped[at], 0)
        if depth == 0:
            head = stripped[: at + 1]
            return _GO_LIST.search(head) is not None and not re.search(r"[?+]\s", head)
    return False


def _aliases(text: str) -> dict[str, str]:
    """Names in the text that stand for claims with other characters: the claim's name → the name in the text."""
    found: dict[str, str] = {}
    for name in set(_ESCAPED.findall(text)):
        plain = _unescaped(name)
        if plain != name:
            found[plain] = name
    return found


def _unescaped(name: str) -> str:
    """What an escaped name stands for. Source: apiserver `pkg/cel/escaping.go`."""
    if name.startswith("__") and name.endswith("__") and _RESERVED.fullmatch(name[2:-2]):
        return name[2:-2]
    return re.sub("|".join(_ESCAPES), lambda match: _ESCAPES[match[0]], name)


def _aliased(value: JSON, aliases: Mapping[str, str]) -> JSON:
    """The value with what has an alias under that name too; a literal name that looks like an alias is not there."""
    if isinstance(value, list):
        return [_aliased(item, aliases) for item in value]
    if not isinstance(value, dict):
        return value
    escaped = set(aliases.values())
    shown = {key: _aliased(item, aliases) for key, item in value.items() if key not in escaped}
    for plain, alias in aliases.items():
        if plain in shown:
            shown[alias] = shown[plain]
    return shown

"""The expressions of an authentication configuration: compiled once when it is loaded, with upstream's types.

`claims` is a map of what the token says; `user` is who it became. Source: apiserver `pkg/authentication/cel`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from muster.api.cel_tree import Call, Const, Ident, Node, Select, walk
from muster.api.cel_types import ANY, BOOL, STRING, Type, list_of, map_of
from muster.api.codec import JSON, Object
from muster.api.expressions import EvaluationFailed, Expression, ExpressionError, NoProgram, NotSupported, compile_typed

Subject = Literal["claims", "user"]

_USER = Type(
    "kubernetes.UserInfo",
    fields={
        "username": STRING,
        "uid": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
)
_TYPES: dict[Subject, Type] = {"claims": map_of(STRING, ANY), "user": _USER}
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
        """Whether this claim is selected, as `claims.NAME` or `claims.?NAME`."""
        return any(_is_claim(node, name) for node in walk(self.expression.tree.root))


def _is_claim(node: Node, name: str) -> bool:
    match node:
        case Select(operand=Ident(name="claims"), field=field):
            return field == name
        case Call(function="_?._", args=(Ident(name="claims"), Const(value=field))):
            return field == name
    return False


def compile_for(text: str, subject: Subject, *, must_be_bool: bool) -> Compiled:
    """The compiled expression. Raises `CompilationFailed`."""
    try:
        compiled = compile_typed(text, {subject: _TYPES[subject]})
        if must_be_bool and compiled.type != BOOL:
            raise CompilationFailed("must evaluate to bool")
        compiled.check_constants()
    except NoProgram as error:
        raise CompilationFailed(f"program instantiation failed: {error}") from error
    except ExpressionError as error:
        raise CompilationFailed(f"compilation failed: {error}") from error
    return Compiled(text, compiled, subject, _aliases(text), _makes_go_list(compiled.tree.root))


def _makes_go_list(node: Node) -> bool:
    """Whether the outermost call is one whose list of texts upstream does not recognise as such."""
    match node:
        case Call(function="split" | "findAll"):
            return True
        case Call(function="_[_]", args=(Call(function="getQuery"), _)):
            return True
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

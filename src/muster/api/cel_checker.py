"""The types of a CEL expression: what is wrong with it, in the words of cel-go, and the type of its value.

Source: cel-go `checker/checker.go` and the validators that `pkg/cel/environment/base.go` turns on: literals of
durations, timestamps and patterns, formats of texts, and lists and maps whose values are of one type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from muster.api import cel_functions
from muster.api.cel_tree import Call, Const, Fold, Ident, ListOf, Node, Select, Struct, Tree, Uint, children, walk
from muster.api.cel_types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Bindings,
    Type,
    kind,
    list_of,
    map_of,
    most_general,
    optional_of,
)

Found = tuple[int, str]
"""Where something is wrong (in characters) and what."""


class Checked:
    """The type of each node of an expression, and everything that is wrong with it."""

    def __init__(
        self,
        tree: Tree,
        variables: Mapping[str, Type],
        functions: Mapping[str, tuple[cel_functions.Overload, ...]],
        *,
        is_pattern: Callable[[str], bool],
    ) -> None:
        self.found: list[Found] = []
        self._tree = tree
        self._scopes: list[dict[str, Type]] = [dict(variables)]
        self._types: dict[int, Type] = {}
        self._bindings = Bindings()
        self._functions = functions
        self._is_pattern = is_pattern
        self._check(tree.root)
        self.type = self.type_of(tree.root)
        """The type of the expression."""
        if not self.found:
            self.found += self._of_literals()

    def type_of(self, node: Node) -> Type:
        """The type of a node; what is not known, such as that of a namespace, is dyn."""
        return self._bindings.resolved(self._types.get(node.id, DYN), rest_is_dyn=True)

    def _at(self, node: Node) -> int:
        return self._tree.positions.get(node.id, 0)

    def _wrong(self, node: Node, message: str) -> Type:
        self.found.append((self._at(node), message))
        return ERROR

    def _check(self, node: Node) -> Type:
        type_ = self._types[node.id] = self._typed(node)
        return type_

    def _typed(self, node: Node) -> Type:
        match node:
            case Const(value=value):
                return _type_of_value(value)
            case Ident(name=name):
                return self._named(name) or self._wrong(node, _undeclared(name))
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListOf():
                return self._list(node)
            case Struct():
                return self._struct(node)
        return self._fold(node)

    def _named(self, name: str) -> Type | None:
        found = next((scope[name] for scope in reversed(self._scopes) if name in scope), None)
        return found or cel_functions.NAMES.get(name)

    def _select(self, node: Select) -> Type:
        name = _qualified(node)
        if name and not node.is_test and self._named(name.partition(".")[0]) is None:
            found = self._named(name)
            if found is not None:
                return found
        type_ = self._field(node, self._check(node.operand), node.field)
        return BOOL if node.is_test else type_

    def _field(self, node: Node, target: Type, field: str) -> Type:
        """The type of a field of a target."""
        target = self._bindings.resolved(target)
        if target.name == "optional_type":
            inner = self._field(node, target.params[0], field)
            return inner if inner.name == "optional_type" else optional_of(inner)
        if target.name == "map":
            return target.params[1]
        if target.fields is not None:
            return target.fields.get(field) or self._wrong(node, f"undefined field '{field}'")
        if target.is_variable:
            self._bindings.accept([target], [DYN])
            return DYN
        if target in (DYN, ANY, ERROR):
            return DYN
        if target.name in _WITHOUT_FIELDS:
            return self._wrong(node, f"unexpected failed resolution of '{target.name}'")
        self._wrong(node, f"type '{self._shown(target)}' does not support field selection")
        return DYN

    def _shown(self, type_: Type) -> str:
        return str(self._bindings.resolved(type_, rest_is_dyn=True))

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            operand, field = node.args
            assert isinstance(field, Const)
            target = self._check(operand)
            self._types[field.id] = STRING
            found = self._field(node, target, str(field.value))
            return found if found.name == "optional_type" else optional_of(found)
        for arg in node.args:
            self._check(arg)
        args = [self._types[arg.id] for arg in node.args]
        if node.function in ("_&&_", "_||_"):
            are_bool = [self._expect(arg, BOOL, type_) for arg, type_ in zip(node.args, args, strict=True)]
            return BOOL if all(are_bool) else ERROR
        if node.target is None:
            if node.function not in self._functions:
                return self._wrong(node, _undeclared(node.function))
            return self._overload(node, node.function, args, is_method=False)
        prefix = _qualified(node.target)
        if prefix and f"{prefix}.{node.function}" in self._functions:
            return self._overload(node, f"{prefix}.{node.function}", args, is_method=False)
        receiver = self._check(node.target)
        if node.function not in self._functions:
            return self._wrong(node, _undeclared(node.function))
        return self._overload(node, node.function, [receiver, *args], is_method=True)

    def _overload(self, node: Node, name: str, args: Sequence[Type], *, is_method: bool) -> Type:
        result: Type | None = None
        for overload in self._functions[name]:
            if overload.is_method is not is_method:
                continue
            *wanted, type_ = self._bindings.instance([*overload.args, overload.result])
            if self._bindings.accept(args, wanted):
                type_ = self._bindings.resolved(type_)
                if result is None:
                    result = type_
                elif result != DYN and result != type_:
                    result = DYN
        if result is not None:
            return result
        shown = [self._shown(each) for each in args]
        form = f"{shown[0]}.({', '.join(shown[1:])})" if is_method else f"({', '.join(shown)})"
        return self._wrong(node, f"found no matching overload for '{name}' applied to '{form}'")

    def _expect(self, node: Node, wanted: Type, given: Type) -> bool:
        if self._bindings.accept([wanted], [given]):
            return True
        found = self._bindings.resolved(given)
        self._wrong(node, f"expected type '{self._bindings.resolved(wanted)}' but found '{found}'")
        return False

    def _joined(self, one: Type | None, other: Type) -> Type:
        if one is None:
            return other
        return most_general(one, other) if self._bindings.accept([one], [other]) else DYN

    def _unwrapped(self, node: Node, type_: Type) -> Type:
        """The type in the type of a value that may be absent."""
        type_ = self._bindings.resolved(type_)
        if type_.name == "optional_type":
            return type_.params[0]
        if type_ not in (DYN, ANY):
            self._wrong(node, f"expected type '{optional_of(type_)}' but found '{type_}'")
        return type_

    def _list(self, node: ListOf) -> Type:
        joined: Type | None = None
        for at, item in enumerate(node.items):
            type_ = self._check(item)
            joined = self._joined(joined, self._unwrapped(item, type_) if at in node.optional else type_)
        return list_of(joined or self._bindings.fresh())

    def _struct(self, node: Struct) -> Type:
        if node.name:
            return self._wrong(node, _undeclared(node.name))
        keys: Type | None = None
        values: Type | None = None
        for entry in node.entries:
            assert not isinstance(entry.key, str)
            keys = self._joined(keys, self._check(entry.key))
            type_ = self._check(entry.value)
            values = self._joined(values, self._unwrapped(entry.value, type_) if entry.is_optional else type_)
        return map_of(keys or self._bindings.fresh(), values or self._bindings.fresh())

    def _fold(self, node: Fold) -> Type:
        self._check(node.over)
        result = self._check(node.start)
        first, second = self._elements(node)
        self._scopes.append({node.result_variable: result})
        self._scopes.append({node.variable: first, **({node.second: second} if node.second else {})})
        self._expect(node.condition, BOOL, self._check(node.condition))
        self._expect(node.step, result, self._check(node.step))
        self._scopes.pop()
        type_ = self._check(node.result)
        self._scopes.pop()
        return self._bindings.resolved(type_)

    def _elements(self, node: Fold) -> tuple[Type, Type]:
        """The types of the variables of a macro."""
        over = self._bindings.resolved(self._types[node.over.id])
        if over.name == "list":
            return (INT, over.params[0]) if node.second else (over.params[0], ERROR)
        if over.name == "map":
            return over.params[0], over.params[1]
        if over in (DYN, ERROR) or over.is_variable:
            self._bindings.accept([DYN], [over])
            return DYN, DYN
        problem = "cannot be range of a comprehension (must be list, map, or dynamic)"
        return self._wrong(node.over, f"expression of type '{over}' {problem}"), ERROR

    def _is_none_of(self, node: Node, kinds: frozenset[str]) -> bool:
        type_ = self.type_of(node)
        return type_ != DYN and kind(type_) not in kinds

    # --- what literals must be ---

    def _of_literals(self) -> Iterator[Found]:
        exempt: set[int] = set()
        for node in walk(self._tree.root):
            if isinstance(node, Call):
                if node.function == "format" and node.target is not None:
                    exempt |= {each.id for arg in node.args for each in walk(arg)}
                    yield from self._of_format(node)
                yield from self._of_constants(node)
            elif isinstance(node, ListOf) and node.id not in exempt:
                yield from self._of_one_type(node.items, node.optional)
            elif isinstance(node, Struct) and node.id not in exempt:
                keys = [entry.key for entry in node.entries if not isinstance(entry.key, str)]
                optional = [at for at, entry in enumerate(node.entries) if entry.is_optional]
                yield from self._of_one_type(keys, ())
                yield from self._of_one_type([entry.value for entry in node.entries], optional)

    def _of_one_type(self, nodes: Sequence[Node], optional: Sequence[int]) -> Iterator[Found]:
        first: Type | None = None
        for at, node in enumerate(nodes):
            type_ = self.type_of(node)
            if at in optional and type_.name == "optional_type":
                type_ = type_.params[0]
            if first is None:
                first = type_
            elif first != type_:
                yield self._at(node), f"expected type '{first}' but found '{type_}'"
                return

    def _of_constants(self, node: Call) -> Iterator[Found]:
        """The literals that durations, timestamps and patterns are made of."""
        checks: dict[str, Callable[[str], bool]] = {
            "duration": is_duration,
            "timestamp": is_timestamp,
            "matches": self._is_pattern,
        }
        check = checks.get(node.function)
        if check is None or not node.args or (node.function == "matches") != (node.target is not None):
            return
        value = node.args[-1]
        if not isinstance(value, Const) or (node.function == "timestamp" and isinstance(value.value, int)):
            return
        if not isinstance(value.value, str) or not check(value.value):
            yield self._at(value), f"invalid {node.function} argument"

    def _of_format(self, node: Call) -> Iterator[Found]:
        """The clauses of a format, and the values for them."""
        if not isinstance(node.target, Const) or not isinstance(node.target.value, str) or len(node.args) != 1:
            return
        clauses, problem = _clauses(node.target.value)
        given = node.args[0]
        if not isinstance(given, ListOf):
            return
        for index, clause in enumerate(clauses):
            if index >= len(given.items):
                yield self._at(node), f"index {index} out of range"
                return
            wanted, words = _CLAUSES[clause]
            wrong = next((each for each in _parts(given.items[index]) if self._is_none_of(each, wanted)), None)
            if wrong is not None:
                yield self._at(wrong), f"error during formatting: {words}, was given {kind(self.type_of(wrong))}"
                return
        if problem:
            start = "" if problem == _CUT_OFF else "could not parse formatting clause: "
            yield self._at(node), f"{start}{problem}"
        elif len(clauses) < len(given.items):
            counts = f"(expected {len(clauses)}, got {len(given.items)})"
            yield self._at(node), f"too many arguments supplied to string.format {counts}"


_WITHOUT_FIELDS = ("kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat")
"""Objects by their declaration, of which nothing is known."""


def _parts(node: Node) -> Iterator[Node]:
    """A value, and those in it where it is a literal."""
    yield node
    if isinstance(node, ListOf | Struct):
        for child in children(node):
            yield from _parts(child)


_ANY_KIND = frozenset(
    ("string", "bool", "bytes", "int", "uint", "double", "map", "list", "type", "null_type")
    + ("google.protobuf.Duration", "google.protobuf.Timestamp")
)
_CLAUSES: dict[str, tuple[frozenset[str], str]] = {
    "s": (
        _ANY_KIND,
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
        "timestamps",
    ),
    "d": (frozenset(("int", "uint")), "decimal clause can only be used on integers"),
    "f": (frozenset(("double", "string")), "fixed-point clause can only be used on doubles"),
    "e": (frozenset(("double", "string")), "scientific clause can only be used on doubles"),
    "b": (frozenset(("int", "uint", "bool")), "only integers and bools can be formatted as binary"),
    "x": (
        frozenset(("int", "uint", "string", "bytes")),
        "only integers, byte buffers, and strings can be formatted as hex",
    ),
    "o": (frozenset(("int", "uint")), "octal clause can only be used on integers"),
}
_CLAUSES["X"] = _CLAUSES["x"]
_CLAUSE = re.compile(r"%(?:%|(?:\.(?P<precision>\d+))?(?P<clause>.)|$)", re.DOTALL)


_CUT_OFF = "unexpected end of string"


def _clauses(text: str) -> tuple[list[str], str]:
    """The clauses of a format up to the first that is none, and what is wrong with that."""
    found: list[str] = []
    for match in _CLAUSE.finditer(text):
        if match[0] == "%%":
            continue
        if match["clause"] is None:
            return found, _CUT_OFF
        if match["clause"] not in _CLAUSES:
            return found, f'unrecognized formatting clause "{match["clause"]}"'
        found.append(match["clause"])
    return found, ""


_DURATION = re.compile(r"[-+]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[-+]?0")
_TIMESTAMP = re.compile(r"\d{4}-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)([.,]\d+)?(Z|[+-](\d\d):(\d\d))")


def is_duration(text: str) -> bool:
    """Whether Go takes the text for a duration."""
    return _DURATION.fullmatch(text) is not None


def is_timestamp(text: str) -> bool:
    """Whether the text is a time of RFC 3339, as Go reads it."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return False
    month, day, hour, minute, second = (int(found[number]) for number in range(1, 6))
    return 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60


def _type_of_value(value: object) -> Type:
    if value is None:
        return NULL
    if isinstance(value, Uint):
        return UINT
    return {bool: BOOL, int: INT, float: DOUBLE, str: STRING, bytes: BYTES}[type(value)]


def _qualified(node: Node) -> str:
    """The name with dots that a node is; "" if it is none."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.is_test:
        prefix = _qualified(node.operand)
        return f"{prefix}.{node.field}" if prefix else ""
    return ""


def _undeclared(name: str) -> str:
    return f"undeclared reference to '{name}' (in container '')"


def shown_errors(found: Sequence[Found], text: str) -> str:
    """The errors by their places, each with the line of the text and a mark under it."""
    return "\n".join(dict.fromkeys(_shown(at, message, text) for at, message in sorted(found)))


def _shown(at: int, message: str, text: str) -> str:
    line = text.count("\n", 0, at)
    column = at - (text.rfind("\n", 0, at) + 1)
    # Go's lines: those of other marks of an end are not ends.
    shown = text.split("\n")[line]
    return f"ERROR: <input>:{line + 1}:{column + 1}: {message}\n | {shown}\n | {'.' * column}^"

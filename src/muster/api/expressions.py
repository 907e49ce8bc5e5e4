"""Expressions in CEL, the Common Expression Language, as Kubernetes uses it: compile once, evaluate often.

A small interface of ours around a young library, which parses and evaluates, and is imported when the first expression
is compiled. Types are checked by `cel_checker` with the functions that Kubernetes declares. Values are JSON values;
what no kind of JSON is (quantities, versions, addresses) is a map of our own. Source of the functions: apiserver
`pkg/cel/environment/base.go`, the same for rules of custom resources, selectors of devices and claims of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from muster.api import addresses, cel_formats, cel_macros
from muster.api.cel_checker import Checked, shown_errors
from muster.api.cel_functions import functions
from muster.api.cel_printing import duration_text, formatted, time_text
from muster.api.cel_tree import Call, Const, Node, Tree, Uint, read_tree, walk, write_tree
from muster.api.cel_types import DYN, Type
from muster.api.codec import JSON, Object
from muster.api.quantity import NANO, QuantityError, parse_quantity
from muster.api.semver import Semver, SemverError, normalised_semver, parse_semver

if TYPE_CHECKING:
    from cel_expr_python import cel

_NO_OVERLOAD = re.compile(r"No matching overload|Applying SELECT to non-message type")
_NO_MAP = "Applying SELECT to non-message type"
_CONVERSION = "type conversion error from 'string' to 'google.protobuf."
_WORDS = (
    (re.compile(r'Key not found in map : "(.*)"', re.DOTALL), r"no such key: \1"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"String to (Timestamp|Duration) conversion failed"), _CONVERSION + r"\1'"),
    (re.compile(r"(?:sort|flatten)\(\): (.*)"), r"\1"),
    (re.compile(r"Index error: index=(\S+) size=.*"), r"index out of bounds: \1"),
)
NO_OVERLOAD = "no such overload"
"""Why there is no value where types do not fit, which only what is `dyn` shows when it is evaluated."""
_QUANTITY = "$quantity"
_SEMVER = "$semver"


class ExpressionError(Exception):
    """Root of what goes wrong with expressions.

    ExpressionError
    ├── NotAnExpression   the text does not compile; not retryable
    ├── NoProgram         the text compiles, but a constant in it cannot be converted; not retryable
    ├── NotSupported      the text uses what a real server knows and this module does not; not retryable
    └── EvaluationFailed  there is no value: a missing key, division by zero, too much work; not retryable
    """


class NotAnExpression(ExpressionError):
    """The text does not compile."""


class NoProgram(ExpressionError):
    """A constant in the text cannot be converted."""


class NotSupported(ExpressionError):
    """The text, or a value's type, is beyond this module."""


class EvaluationFailed(ExpressionError):
    """The expression has no value for these variables."""


class Expression:
    """A compiled expression. Make one with `compile_expression` or `compile_typed`."""

    def __init__(
        self, text: str, tree: Tree, type_: Type, evaluated: Tree, rewrite: Callable[[Tree], Tree] | None
    ) -> None:
        self.text = text
        self.tree = tree
        """The expression as parsed."""
        self.type = type_
        """What its value is."""
        self._rewritten = rewrite(evaluated) if rewrite is not None else evaluated
        self._program = _program(cel_macros.evaluable(self._rewritten))
        self._lenient: cel.Expression | None = None

    def check_constants(self) -> None:
        """Convert the constants in it, as kube-apiserver does once the type is right. Raises `NoProgram`."""
        for node in walk(self.tree.root):
            _check_constant(self.tree, node)

    def evaluate(self, variables: Mapping[str, JSON]) -> JSON:
        """The value, as JSON. Raises `EvaluationFailed` and `NotSupported`; the work is bounded."""
        value, problem = _evaluated(self._program, variables)
        if problem is not None and _NO_MAP in problem:
            # The library fails where a field of what is no map is asked for; in CEL it is not there.
            if self._lenient is None:
                self._lenient = _program(cel_macros.with_tested_fields(cel_macros.evaluable(self._rewritten)))
            value, problem = _evaluated(self._lenient, variables)
        if problem is not None:
            raise _failed(_plain_text(problem))
        return value


def _evaluated(program: cel.Expression, variables: Mapping[str, JSON]) -> tuple[JSON, str | None]:
    """A value, or why there is none. Raises `NotSupported`."""
    try:
        value = program.eval(data=dict(variables))
        plain: JSON = value.plain_value()
    except TypeError as error:  # such as an optional: the library has no plain value of it
        raise NotSupported("the value has no form in JSON") from error
    except RuntimeError as error:
        return None, str(error)
    return (None, str(value.value())) if value.type().name() == "ERROR" else (plain, None)


def _failed(text: str) -> ExpressionError:
    return NotSupported(NO_OVERLOAD) if _NO_OVERLOAD.search(text) else EvaluationFailed(text)


def _plain_text(text: str) -> str:
    """An error of the library without its status codes, in the words of cel-go where they are short."""
    text = re.sub(r"^[A-Z_]+: ", "", re.sub(r" \[[A-Z_]+\]$", "", text))
    for pattern, words in _WORDS:
        if pattern.fullmatch(text):
            return pattern.sub(words, text)
    return text


@lru_cache(maxsize=1024)
def compile_expression(text: str, names: tuple[str, ...] = ("self",)) -> Expression:
    """The expression over variables of these names, whose types are not known. Raises `NotAnExpression`."""
    return compile_typed(text, dict.fromkeys(names, DYN))


def compile_typed(
    text: str,
    variables: Mapping[str, Type],
    *,
    binds: bool = False,
    includes: bool = False,
    rewrite: Callable[[Tree], Tree] | None = None,
) -> Expression:
    """The expression over variables of these types. Raises `NotAnExpression` with all errors, in cel-go's words.

    `binds`: with the macro `cel.bind`. `includes`: with the function of that name, of lists. `rewrite`: what is
    evaluated in place of what was checked.
    """
    tree = cel_macros.expanded(_parsed(text, binds))
    checked = Checked(tree, variables, functions(includes), is_pattern=_is_pattern)
    if checked.found:
        raise NotAnExpression(shown_errors(checked.found, text))
    return Expression(text, tree, checked.type, cel_macros.with_known_types(tree, checked), rewrite)


_CONVERSIONS = {
    ("bool", str): "type conversion error from 'string' to 'bool'",
    ("double", str): "type conversion error from 'string' to 'double'",
    ("int", str): "type conversion error from 'string' to 'int'",
    ("uint", str): "type conversion error from 'string' to 'uint'",
    ("int", float): "integer overflow",
    ("int", Uint): "integer overflow",
    ("uint", float): "unsigned integer overflow",
    ("uint", int): "unsigned integer overflow",
    ("string", bytes): "invalid UTF-8 in bytes, cannot convert to string",
}
"""Why a constant of a type cannot be converted, by the function."""


def _check_constant(tree: Tree, node: Node) -> None:
    """Convert a constant if the node does that. Raises `NoProgram`."""
    if not isinstance(node, Call) or node.target is not None or len(node.args) != 1:
        return
    (value,) = node.args
    why = _CONVERSIONS.get((node.function, type(value.value))) if isinstance(value, Const) else None
    if why is not None and _evaluated(_program(tree.with_root(node)), {})[1] is not None:
        raise NoProgram(why)


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _parsed(text: str, binds: bool) -> Tree:
    try:
        return read_tree(
            _environment(binds).compile(_without_repeated_parentheses(text), disable_check=True).serialize()
        )
    except RuntimeError as error:
        raise NotAnExpression(_plain_text(str(error))) from error


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


_LIBRARIES = "extensions: [{name: two-var-comprehensions}, {name: lists}, {name: strings, version: 2}]"


@lru_cache(maxsize=2)
def _environment(binds: bool = False) -> cel.Env:
    """The library with what Kubernetes has; the same for all who use expressions, but for the macro `cel.bind`."""
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_optional

    extensions = [ext_optional.ExtOptional(), _kubernetes(), *([ext_bindings.ExtBindings()] if binds else [])]
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(_LIBRARIES), extensions=extensions)


def _program(tree: Tree) -> cel.Expression:
    try:
        return _environment().deserialize(write_tree(tree))
    except RuntimeError as error:
        raise NotSupported(_plain_text(str(error))) from error


def _kubernetes() -> cel.CelExtensionBase:
    """Kubernetes' functions on lists, texts and quantities."""
    from cel_expr_python import cel

    dyn, text, whole, truth = cel.Type.DYN, cel.Type.STRING, cel.Type.INT, cel.Type.BOOL
    some, fact = cel.Type.LIST, cel.Type.MAP

    def member(name: str, result: cel.Type, of: Iterable[cel.Type], call: Callable[..., JSON]) -> cel.FunctionDecl:
        parameters = list(of)
        identity = f"muster_{name}_{len(parameters)}_{parameters[0].name()}".lower().replace("<", "_").replace(">", "_")
        overload = cel.Overload(identity.replace(",", "").replace(" ", ""), result, parameters, True, call)
        return cel.FunctionDecl(name, [overload])

    def members(name: str, result: cel.Type, *forms: tuple[list[cel.Type], Callable[..., JSON]]) -> cel.FunctionDecl:
        overloads = [
            cel.Overload(f"muster_{name}_{len(parameters)}", result, parameters, True, call)
            for parameters, call in forms
        ]
        return cel.FunctionDecl(name, overloads)

    def function(name: str, result: cel.Type, of: list[cel.Type], call: Callable[..., JSON]) -> cel.FunctionDecl:
        return cel.FunctionDecl(name, [cel.Overload(f"muster_{name.replace('.', '_')}", result, of, False, call)])

    def plain(name: str, result: cel.Type, call: Callable[..., JSON], of: cel.Type = text) -> cel.FunctionDecl:
        return function(name, result, [of], call)

    def plain_of_nothing(name: str, format_: str) -> cel.FunctionDecl:
        return function(name, fact, [], lambda: cel_formats.format_value(format_))

    def versions(name: str, result: cel.Type, call: Callable[..., JSON]) -> cel.FunctionDecl:
        strict = cel.Overload(f"muster_{name}", result, [text], False, call)
        return cel.FunctionDecl(
            name, [strict, cel.Overload(f"muster_{name}_tolerant", result, [text, truth], False, call)]
        )

    return cel.CelExtension(
        "muster.kubernetes",
        [
            *(plain_of_nothing(f"format.{name}", name) for name in cel_formats.FORMATS),
            function(cel_macros.FORMATS, fact, [], cel_formats.formats_by_name),
            function(cel_macros.VALIDATED, fact, [fact, text], cel_formats.validated),
            function(cel_macros.FORMAT_TEXT, text, [text, some], formatted),
            function(cel_macros.AS_TEXT, text, [dyn], _as_text),
            *(
                function(cel_macros.IN_TEXT[name], text, [some], lambda items, of=of: _as_text(of(items)))
                for name, of in (("sum", _sum_of_spans), ("min", _extreme("min", min)), ("max", _extreme("max", max)))
            ),
            function(cel_macros.MILLISECONDS, whole, [dyn], lambda span: span // timedelta(milliseconds=1)),
            function(cel_macros.HAS_FIELD, truth, [dyn, text], lambda a, name: isinstance(a, dict) and name in a),
            cel.FunctionDecl(
                cel_macros.MAP_INSERT,
                [
                    cel.Overload("muster_insert", fact, [fact, dyn, dyn], False, _inserted),
                    cel.Overload("muster_insert_all", fact, [fact, fact], False, _inserted_all),
                ],
            ),
            member("isSorted", truth, [some], _is_sorted),
            member("sum", dyn, [some], _sum),
            member("min", dyn, [some], _extreme("min", min)),
            member("max", dyn, [some], _extreme("max", max)),
            member("indexOf", whole, [some, dyn], lambda items, item: items.index(item) if item in items else -1),
            member("lastIndexOf", whole, [some, dyn], _last_index),
            function("sets.contains", truth, [some, some], lambda a, b: all(item in a for item in b)),
            function("sets.intersects", truth, [some, some], lambda a, b: any(item in a for item in b)),
            function("sets.equivalent", truth, [some, some], _equivalent),
            member("find", text, [text, text], _find),
            members("findAll", some, ([text, text], _find_all), ([text, text, whole], _find_all)),
            plain("quantity", fact, _quantity),
            plain("isQuantity", truth, _is_quantity),
            plain("url", fact, addresses.url_value),
            plain("isURL", truth, lambda text: addresses.is_valid(addresses.url_value, text)),
            member("getScheme", text, [fact], addresses.url_part("scheme")),
            member("getHost", text, [fact], addresses.url_part("host")),
            member("getHostname", text, [fact], addresses.url_part("hostname")),
            member("getPort", text, [fact], addresses.url_part("port")),
            member("getEscapedPath", text, [fact], addresses.url_part("path")),
            member("getQuery", fact, [fact], addresses.url_part("query")),
            cel.FunctionDecl(
                "ip",
                [
                    cel.Overload("muster_ip", fact, [text], False, addresses.ip_value),
                    cel.Overload("muster_ip_of_cidr", fact, [fact], True, addresses.network_address),
                ],
            ),
            plain("isIP", truth, lambda text: addresses.is_valid(addresses.ip_value, text)),
            plain("ip.isCanonical", truth, addresses.is_canonical),
            member("family", whole, [fact], lambda a: addresses.address_of(a).version),
            member("isUnspecified", truth, [fact], lambda a: addresses.address_of(a).is_unspecified),
            member("isLoopback", truth, [fact], lambda a: addresses.address_of(a).is_loopback),
            member("isLinkLocalMulticast", truth, [fact], addresses.is_local_multicast),
            member("isLinkLocalUnicast", truth, [fact], lambda a: addresses.address_of(a).is_link_local),
            member("isGlobalUnicast", truth, [fact], addresses.is_global_unicast),
            plain("cidr", fact, addresses.cidr_value),
            plain("isCIDR", truth, lambda text: addresses.is_valid(addresses.cidr_value, text)),
            member("containsIP", truth, [fact, dyn], addresses.contains),
            member("containsCIDR", truth, [fact, dyn], addresses.contains),
            member("masked", fact, [fact], addresses.masked),
            member("prefixLength", whole, [fact], lambda a: addresses.interface_of(a).network.prefixlen),
            versions("semver", fact, semver_value),
            versions("isSemver", truth, _is_semver),
            member("major", whole, [fact], lambda a: _version(a).major),
            member("minor", whole, [fact], lambda a: _version(a).minor),
            member("patch", whole, [fact], lambda a: _version(a).patch),
            member("compareTo", whole, [fact, fact], _compared),
            member("isLessThan", truth, [fact, fact], lambda a, b: _compared(a, b) < 0),
            member("isGreaterThan", truth, [fact, fact], lambda a, b: _compared(a, b) > 0),
            member("includes", truth, [dyn, dyn], _includes),
            plain("sign", whole, lambda a: (_nano(a) > 0) - (_nano(a) < 0), fact),
            member("isInteger", truth, [fact], lambda a: _nano(a) % NANO == 0),
            member("asInteger", whole, [fact], _as_integer),
            member("asApproximateFloat", cel.Type.DOUBLE, [fact], lambda a: _nano(a) / NANO),
            member("add", fact, [fact, dyn], lambda a, b: _in_nano(_nano(a) + _nano(b))),
            member("sub", fact, [fact, dyn], lambda a, b: _in_nano(_nano(a) - _nano(b))),
        ],
    )


def _inserted(of: Object, key: JSON, value: JSON) -> Object:
    if key in of:
        raise ValueError(f"insert failed: key {key} already exists")
    return {**of, key: value}


def _inserted_all(of: Object, more: Object) -> Object:
    for key, value in more.items():
        of = _inserted(of, key, value)
    return of


def _sum(items: list[JSON]) -> JSON:
    return sum(items[1:], items[0]) if items else 0


def _sum_of_spans(items: list[timedelta]) -> timedelta:
    return sum(items, timedelta())


def _extreme(name: str, of: Callable[[list[JSON]], JSON]) -> Callable[[list[JSON]], JSON]:
    def found(items: list[JSON]) -> JSON:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return of(items)

    return found


def _as_integer(value: Object) -> int:
    if _nano(value) % NANO:
        raise ValueError("cannot convert value to integer")
    return _nano(value) // NANO


def _as_text(value: object) -> str:
    """A time, duration, address or network as text."""
    if isinstance(value, datetime):
        return time_text(value)
    return duration_text(value) if isinstance(value, timedelta) else addresses.text_of(value)


def _is_sorted(items: list[JSON]) -> bool:
    return all(first <= second for first, second in pairwise(items))


def _find(value: str, pattern: str) -> str:
    match = re.search(pattern, value)
    return match[0] if match else ""


def _last_index(items: list[JSON], item: JSON) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if items[at] == item), -1)


def _equivalent(a: list[JSON], b: list[JSON]) -> bool:
    return all(item in b for item in a) and all(item in a for item in b)


def _find_all(value: str, pattern: str, limit: int = -1) -> list[JSON]:
    found: list[JSON] = [match[0] for match in re.finditer(pattern, value)]
    return found if limit < 0 else found[:limit]


def _includes(value: JSON, item: JSON) -> bool:
    """Whether a list has the item; any other value is a list of itself (`includes` of device attributes)."""
    return item in value if isinstance(value, list) else bool(value == item)


def semver_value(value: str, tolerant: bool = False) -> Object:
    """A semantic version as a value of expressions. Raises SemverError."""
    return {_SEMVER: str(normalised_semver(value) if tolerant else parse_semver(value))}


def quantity_value(value: JSON) -> Object:
    """A quantity as a value of expressions. Raises QuantityError."""
    return _in_nano(parse_quantity(value).nano)


def kind_of_value(value: JSON) -> str:
    """ "Quantity" or "Semver" for a value of `evaluate` that is one, else ""."""
    if isinstance(value, dict) and len(value) == 1:
        return {_QUANTITY: "Quantity", _SEMVER: "Semver"}.get(next(iter(value)), "")
    return ""


def _is_semver(value: str, tolerant: bool = False) -> bool:
    try:
        semver_value(value, tolerant)
    except SemverError:
        return False
    return True


@lru_cache(maxsize=1024)
def _parsed_version(text: str) -> Semver:
    return parse_semver(text)


def _version(value: Object) -> Semver:
    if _SEMVER not in value:
        raise ValueError("no such overload")
    return _parsed_version(value[_SEMVER])


def _compared(a: Object, b: Object) -> int:
    """-1, 0 or 1 for two quantities or two versions."""
    if _SEMVER in a and _SEMVER in b:
        one, other = _version(a), _version(b)
        return 0 if one == other else (1 if one.order > other.order else -1)
    return (_nano(a) > _nano(b)) - (_nano(a) < _nano(b))


def _quantity(value: str) -> Object:
    return _in_nano(parse_quantity(value).nano)


def _is_quantity(value: str) -> bool:
    try:
        parse_quantity(value)
    except QuantityError:
        return False
    return True


def _in_nano(nano: int) -> Object:
    # As text: thousand millionths of what a disk holds are beyond 64 bits.
    return {_QUANTITY: str(nano)}


def _nano(value: Object | int) -> int:
    """A quantity, or a whole number as one, in its smallest unit."""
    if isinstance(value, int):
        return value * NANO
    if _QUANTITY not in value:
        raise ValueError("no such overload")
    return int(value[_QUANTITY])

"""Expressions in CEL, the Common Expression Language, as Kubernetes uses it: compile once, evaluate often.

A small interface of ours around a young library, which is imported when the first expression is compiled. Values are
JSON values. What Kubernetes adds to the language and is not here (two-variable comprehensions, formats, an authorizer)
raises `NotSupported` at compile time. There is no type check against schemas: everything is `dyn`. Source of the
functions: apiserver `pkg/cel/library`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from muster.api import addresses
from muster.api.codec import JSON, Object
from muster.api.quantity import NANO, QuantityError, parse_quantity
from muster.api.semver import Semver, SemverError, normalised_semver, parse_semver

if TYPE_CHECKING:
    from cel_expr_python import cel

_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_WORDS = """
transformList transformMap transformMapEntry sortBy format authorizer authorizer.requestResource
dns1123Label dns1123Subdomain dns1035Label qualifiedName labelValue
"""
_ELSEWHERE = frozenset(_WORDS.split())
"""Names that a real server knows and this module does not."""
_NO_OVERLOAD = "No matching overload"
_QUANTITY = "$quantity"
_SEMVER = "$semver"


class ExpressionError(Exception):
    """Root of what goes wrong with expressions.

    ExpressionError
    ├── NotAnExpression   the text does not compile; not retryable
    ├── NotSupported      the text uses what a real server knows and this module does not; not retryable
    └── EvaluationFailed  there is no value: a missing key, division by zero, too much work; not retryable
    """


class NotAnExpression(ExpressionError):
    """The text does not compile."""


class NotSupported(ExpressionError):
    """The text, or a value's type, is beyond this module."""


class EvaluationFailed(ExpressionError):
    """The expression has no value for these variables."""


class Expression:
    """A compiled expression. Make one with `compile_expression`."""

    def __init__(self, text: str, compiled: cel.Expression) -> None:
        self.text = text
        self._compiled = compiled

    def evaluate(self, variables: Mapping[str, JSON]) -> JSON:
        """The value, as JSON. Raises `EvaluationFailed` and `NotSupported`; the work is bounded."""
        try:
            value = self._compiled.eval(data=dict(variables))
            plain: JSON = value.plain_value()
        except TypeError as error:  # such as an optional: the library has no plain value of it
            raise NotSupported("the value has no form in JSON") from error
        except RuntimeError as error:
            raise _failed(_plain_text(str(error))) from error
        if value.type().name() == "ERROR":
            raise _failed(_plain_text(str(value.value())))
        return plain


def _failed(text: str) -> ExpressionError:
    return NotSupported(text) if _NO_OVERLOAD in text else EvaluationFailed(text)


def _plain_text(text: str) -> str:
    """An error of the library without its status codes, in the words of cel-go where they are short."""
    text = re.sub(r"^[A-Z_]+: ", "", re.sub(r" \[[A-Z_]+\]$", "", text))
    missing = re.fullmatch(r'Key not found in map : "(.*)"', text)
    return f"no such key: {missing[1]}" if missing else text


@lru_cache(maxsize=1024)
def compile_expression(text: str, names: tuple[str, ...] = ("self",)) -> Expression:
    """The expression over variables of these names. Raises `NotAnExpression` and `NotSupported`."""
    try:
        return Expression(text, _environment(names).compile(text))
    except RuntimeError as error:
        message = _plain_text(str(error))
        undeclared = set(_UNDECLARED.findall(message))
        if undeclared and undeclared & _ELSEWHERE:
            raise NotSupported(f"not supported here: {', '.join(sorted(undeclared & _ELSEWHERE))}") from error
        if "undeclared reference" in message and re.search(r"\.(all|exists|existsOne)\(\s*\w+\s*,\s*\w+\s*,", text):
            raise NotSupported("comprehensions with two variables are not supported here") from error
        raise NotAnExpression(message) from error


@lru_cache(maxsize=1024)
def type_of_expression(text: str, declarations: str) -> str:
    """The type that the expression has by the declared types of its variables, such as BOOL or LIST<STRING>.

    `declarations`: the variables as YAML of cel's environment configuration. Raises `NotAnExpression` with all errors
    in the words of cel-go, by their place.
    """
    try:
        return str(_typed_environment(declarations).compile(text).return_type().name())
    except RuntimeError as error:
        raise NotAnExpression(_by_place(_plain_text(str(error)))) from error


@lru_cache(maxsize=16)
def _typed_environment(declarations: str) -> cel.Env:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_optional, ext_strings

    extensions = [ext_strings.ExtStrings(), ext_optional.ExtOptional(), _kubernetes()]
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(declarations), extensions=extensions)


_PLACE = re.compile(r"ERROR: <input>:(\d+):(\d+): ")


def _by_place(text: str) -> str:
    """The errors of a compilation in the order of their places, without those that are there twice."""
    starts = [found.start() for found in _PLACE.finditer(text)]
    if not starts:
        return text
    ends = [*starts[1:], len(text)]
    parts = dict.fromkeys(text[start:end].rstrip("\n") for start, end in zip(starts, ends, strict=True))
    texts = [part.replace("cannot be the range of", "cannot be range of") for part in parts]

    def place(part: str) -> tuple[int, int]:
        found = _PLACE.match(part)
        assert found is not None
        return int(found[1]), int(found[2])

    return "\n".join(sorted(texts, key=place))


@lru_cache(maxsize=64)
def _environment(names: tuple[str, ...]) -> cel.Env:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

    extensions = [
        ext_strings.ExtStrings(),
        ext_optional.ExtOptional(),
        ext_bindings.ExtBindings(),
        ext_math.ExtMath(),
        _kubernetes(),
    ]
    return cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN), extensions=extensions)


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

    def versions(name: str, result: cel.Type, call: Callable[..., JSON]) -> cel.FunctionDecl:
        strict = cel.Overload(f"muster_{name}", result, [text], False, call)
        return cel.FunctionDecl(
            name, [strict, cel.Overload(f"muster_{name}_tolerant", result, [text, truth], False, call)]
        )

    return cel.CelExtension(
        "muster.kubernetes",
        [
            member("isSorted", truth, [some], _is_sorted),
            member("sum", dyn, [some], lambda items: sum(items)),
            member("min", dyn, [some], lambda items: min(items)),
            member("max", dyn, [some], lambda items: max(items)),
            member("indexOf", whole, [some, dyn], lambda items, item: items.index(item) if item in items else -1),
            member("lastIndexOf", whole, [some, dyn], _last_index),
            member("sort", some, [some], sorted),
            member("distinct", some, [some], _distinct),
            member("slice", some, [some, whole, whole], _slice),
            member("reverse", some, [some], lambda items: items[::-1]),
            members("flatten", some, ([some], _flatten), ([some, whole], _flatten)),
            plain("lists.range", some, lambda count: list(range(count)), whole),
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
            member("sign", whole, [fact], lambda a: (_nano(a) > 0) - (_nano(a) < 0)),
            member("isInteger", truth, [fact], lambda a: _nano(a) % NANO == 0),
            member("asInteger", whole, [fact], lambda a: _nano(a) // NANO),
            member("asApproximateFloat", cel.Type.DOUBLE, [fact], lambda a: _nano(a) / NANO),
            member("add", fact, [fact, fact], lambda a, b: _in_nano(_nano(a) + _nano(b))),
            member("sub", fact, [fact, fact], lambda a, b: _in_nano(_nano(a) - _nano(b))),
        ],
    )


def _is_sorted(items: list[JSON]) -> bool:
    return all(first <= second for first, second in pairwise(items))


def _find(value: str, pattern: str) -> str:
    match = re.search(pattern, value)
    return match[0] if match else ""


def _last_index(items: list[JSON], item: JSON) -> int:
    return next((at for at in range(len(items) - 1, -1, -1) if items[at] == item), -1)


def _distinct(items: list[JSON]) -> list[JSON]:
    found: list[JSON] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _slice(items: list[JSON], start: int, end: int) -> list[JSON]:
    if not 0 <= start <= end <= len(items):
        raise ValueError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(items: list[JSON], depth: int = 1) -> list[JSON]:
    found: list[JSON] = []
    for item in items:
        if isinstance(item, list):
            found += _flatten(item, depth - 1) if depth > 1 else item
        else:
            found.append(item)
    return found


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


def _nano(value: Object) -> int:
    if _QUANTITY not in value:
        raise ValueError("no such overload")
    return int(value[_QUANTITY])

"""The functions of CEL as Kubernetes declares them: names and types.

Source: cel-go's standard library, its extensions for texts (version 2), lists (3), sets and optional values, and
apiserver `pkg/cel/library`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from muster.api.cel_types import Type, read_type, read_types


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function; the first argument of a method is its receiver."""

    is_method: bool
    args: tuple[Type, ...]
    result: Type


_NUMBERS = ("int", "uint", "double")
_ORDERED = ("bool", *_NUMBERS, "string", "bytes", "timestamp", "duration")
_DECLARED = """
_?_:_(bool, A, A) A
_&&_(bool, bool) bool
_||_(bool, bool) bool
!_(bool) bool
@not_strictly_false(bool) bool
_==_(A, A) bool
_!=_(A, A) bool
@in(A, list(A)) bool
@in(A, map(A, B)) bool
_[_](list(A), int) A
_[_](map(A, B), A) B
_[_](optional(list(A)), int) optional(A)
_[_](optional(map(A, B)), A) optional(B)
_[?_](list(A), int) optional(A)
_[?_](optional(list(A)), int) optional(A)
_[?_](map(A, B), A) optional(B)
_[?_](optional(map(A, B)), A) optional(B)
-_(int) int
-_(double) double
_+_(bytes, bytes) bytes
_+_(double, double) double
_+_(duration, duration) duration
_+_(duration, timestamp) timestamp
_+_(timestamp, duration) timestamp
_+_(int, int) int
_+_(list(A), list(A)) list(A)
_+_(string, string) string
_+_(uint, uint) uint
_-_(double, double) double
_-_(duration, duration) duration
_-_(int, int) int
_-_(timestamp, duration) timestamp
_-_(timestamp, timestamp) duration
_-_(uint, uint) uint
_*_(double, double) double
_*_(int, int) int
_*_(uint, uint) uint
_/_(double, double) double
_/_(int, int) int
_/_(uint, uint) uint
_%_(int, int) int
_%_(uint, uint) uint
size(bytes) int
bytes.size() int
size(list(A)) int
list(A).size() int
size(map(A, B)) int
map(A, B).size() int
size(string) int
string.size() int
type(A) type(A)
dyn(A) dyn
bool(bool) bool
bool(string) bool
bytes(bytes) bytes
bytes(string) bytes
double(double) double
double(int) double
double(string) double
double(uint) double
duration(duration) duration
duration(int) duration
duration(string) duration
int(int) int
int(double) int
int(duration) int
int(string) int
int(timestamp) int
int(uint) int
string(string) string
string(bool) string
string(bytes) string
string(double) string
string(duration) string
string(int) string
string(timestamp) string
string(uint) string
timestamp(timestamp) timestamp
timestamp(int) timestamp
timestamp(string) timestamp
uint(uint) uint
uint(double) uint
uint(int) uint
uint(string) uint
string.contains(string) bool
string.endsWith(string) bool
string.startsWith(string) bool
matches(string, string) bool
string.matches(string) bool
timestamp.getFullYear() int
timestamp.getFullYear(string) int
timestamp.getMonth() int
timestamp.getMonth(string) int
timestamp.getDayOfYear() int
timestamp.getDayOfYear(string) int
timestamp.getDayOfMonth() int
timestamp.getDayOfMonth(string) int
timestamp.getDate() int
timestamp.getDate(string) int
timestamp.getDayOfWeek() int
timestamp.getDayOfWeek(string) int
timestamp.getHours() int
timestamp.getHours(string) int
duration.getHours() int
timestamp.getMinutes() int
timestamp.getMinutes(string) int
duration.getMinutes() int
timestamp.getSeconds() int
timestamp.getSeconds(string) int
duration.getSeconds() int
timestamp.getMilliseconds() int
timestamp.getMilliseconds(string) int
duration.getMilliseconds() int
string.charAt(int) string
string.indexOf(string) int
string.indexOf(string, int) int
string.lastIndexOf(string) int
string.lastIndexOf(string, int) int
string.lowerAscii() string
string.upperAscii() string
string.replace(string, string) string
string.replace(string, string, int) string
string.split(string) list(string)
string.split(string, int) list(string)
string.substring(int) string
string.substring(int, int) string
string.trim() string
string.format(list(dyn)) string
strings.quote(string) string
list(string).join() string
list(string).join(string) string
list(A).slice(int, int) list(A)
list(list(A)).flatten() list(A)
list(dyn).flatten(int) list(dyn)
list(A).distinct() list(A)
list(A).reverse() list(A)
list(A).first() optional(A)
list(A).last() optional(A)
lists.range(int) list(int)
list(A).indexOf(A) int
list(A).lastIndexOf(A) int
cel.@mapInsert(map(A, B), A, B) map(A, B)
cel.@mapInsert(map(A, B), map(A, B)) map(A, B)
sets.contains(list(A), list(A)) bool
sets.intersects(list(A), list(A)) bool
sets.equivalent(list(A), list(A)) bool
optional.of(A) optional(A)
optional.ofNonZeroValue(A) optional(A)
optional.none() optional(A)
optional(A).hasValue() bool
optional(A).value() A
optional(A).or(optional(A)) optional(A)
optional(A).orValue(A) A
optional.unwrap(list(optional(A))) list(A)
list(optional(A)).unwrapOpt() list(A)
string.find(string) string
string.findAll(string) list(string)
string.findAll(string, int) list(string)
url(string) kubernetes.URL
isURL(string) bool
kubernetes.URL.getScheme() string
kubernetes.URL.getHost() string
kubernetes.URL.getHostname() string
kubernetes.URL.getPort() string
kubernetes.URL.getEscapedPath() string
kubernetes.URL.getQuery() map(string, list(string))
ip(string) net.IP
isIP(string) bool
ip.isCanonical(string) bool
net.IP.family() int
net.IP.isUnspecified() bool
net.IP.isLoopback() bool
net.IP.isLinkLocalMulticast() bool
net.IP.isLinkLocalUnicast() bool
net.IP.isGlobalUnicast() bool
string(net.IP) string
cidr(string) net.CIDR
isCIDR(string) bool
net.CIDR.containsIP(string) bool
net.CIDR.containsIP(net.IP) bool
net.CIDR.containsCIDR(string) bool
net.CIDR.containsCIDR(net.CIDR) bool
net.CIDR.ip() net.IP
net.CIDR.masked() net.CIDR
net.CIDR.prefixLength() int
string(net.CIDR) string
quantity(string) kubernetes.Quantity
isQuantity(string) bool
kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) bool
kubernetes.Quantity.isLessThan(kubernetes.Quantity) bool
kubernetes.Quantity.compareTo(kubernetes.Quantity) int
kubernetes.Quantity.asApproximateFloat() double
kubernetes.Quantity.asInteger() int
kubernetes.Quantity.isInteger() bool
sign(kubernetes.Quantity) int
kubernetes.Quantity.add(kubernetes.Quantity) kubernetes.Quantity
kubernetes.Quantity.add(int) kubernetes.Quantity
kubernetes.Quantity.sub(kubernetes.Quantity) kubernetes.Quantity
kubernetes.Quantity.sub(int) kubernetes.Quantity
semver(string) kubernetes.Semver
semver(string, bool) kubernetes.Semver
isSemver(string) bool
isSemver(string, bool) bool
kubernetes.Semver.major() int
kubernetes.Semver.minor() int
kubernetes.Semver.patch() int
kubernetes.Semver.isGreaterThan(kubernetes.Semver) bool
kubernetes.Semver.isLessThan(kubernetes.Semver) bool
kubernetes.Semver.compareTo(kubernetes.Semver) int
format.named(string) optional(kubernetes.NamedFormat)
kubernetes.NamedFormat.validate(string) optional(list(string))
kubernetes.authorization.Authorizer.path(string) kubernetes.authorization.PathCheck
kubernetes.authorization.Authorizer.group(string) kubernetes.authorization.GroupCheck
kubernetes.authorization.Authorizer.serviceAccount(string, string) kubernetes.authorization.Authorizer
kubernetes.authorization.GroupCheck.resource(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.subresource(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.namespace(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.name(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.fieldSelector(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.labelSelector(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.check(string) kubernetes.authorization.Decision
kubernetes.authorization.PathCheck.check(string) kubernetes.authorization.Decision
kubernetes.authorization.Decision.allowed() bool
kubernetes.authorization.Decision.reason() string
kubernetes.authorization.Decision.errored() bool
kubernetes.authorization.Decision.error() string
"""
FORMATS = (
    ("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix")
    + ("dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime")
)  # fmt: skip
"""The named formats: `format.NAME()`."""
NAMES = {
    **{name: read_type(f"type({name})") for name in ("bool", "bytes", "double", "int", "string", "uint", "type")},
    **{"list": read_type("type(list(dyn))"), "map": read_type("type(map(dyn, dyn))"), "null_type": Type("type")},
    "google.protobuf.Timestamp": read_type("type(timestamp)"),
    "google.protobuf.Duration": read_type("type(duration)"),
    "net.IP": read_type("type(net.IP)"),
    "net.CIDR": read_type("type(net.CIDR)"),
    "kubernetes.URL": read_type("type(kubernetes.URL)"),
    "kubernetes.Quantity": read_type("type(kubernetes.Quantity)"),
    "optional_type": read_type("type(optional(dyn))"),
}
"""Names that are there without being declared: those of types."""
_NAMESPACES = ("sets", "optional", "lists", "strings", "format", "ip", "cel")


def _generated() -> list[str]:
    found = [
        f"{name}({one}, {other}) bool"
        for name in ("_<_", "_<=_", "_>_", "_>=_")
        for one in _ORDERED
        for other in _ORDERED
        if one == other or (one in _NUMBERS and other in _NUMBERS)
    ]
    for item in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
        found += [f"list({item}).sort() list({item})", f"list({item}).isSorted() bool"]
        found += [f"list({item}).{name}() {item}" for name in ("min", "max")]
        found += [f"list(A).@sortByAssociatedKeys(list({item})) list(A)"]
    found += [f"list({item}).sum() {item}" for item in ("int", "uint", "double", "duration")]
    return found + [f"format.{name}() kubernetes.NamedFormat" for name in FORMATS]


def _parsed(line: str) -> tuple[str, Overload]:
    """The name and overload of a line: a receiver that is no namespace makes a method."""
    head, result = _split_result(line)
    name, args = _split_args(head)
    dot = -1 if name.startswith(("_", "@", "!", "-")) else _last_dot(name)
    receiver = name[:dot] if dot > 0 else ""
    if not receiver or receiver in _NAMESPACES:
        return name, Overload(False, read_types(args), read_type(result))
    return name[dot + 1 :], Overload(True, (read_type(receiver), *read_types(args)), read_type(result))


def _split_result(line: str) -> tuple[str, str]:
    """What is before and after the bracket that closes the arguments: the last one outside of the result."""
    depth = 0
    for at, mark in enumerate(line):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if mark == " " and depth == 0:
            return line[:at], line[at + 1 :]
    raise ValueError(line)


def _split_args(head: str) -> tuple[str, str]:
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(head[at], 0)
        if depth == 0:
            return head[:at], head[at + 1 : -1]
    raise ValueError(head)


def _last_dot(name: str) -> int:
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if name[at] == "." and depth == 0:
            return at
    return -1


@cache
def functions(includes: bool = False) -> Mapping[str, tuple[Overload, ...]]:
    """The overloads of each function, in the order in which they are tried. `includes`: with that of device lists."""
    found: dict[str, list[Overload]] = {}
    more = ["A.includes(B) bool"] if includes else []
    for line in (*_DECLARED.strip().splitlines(), *_generated(), *more):
        name, overload = _parsed(line)
        found.setdefault(name, []).append(overload)
    return {name: tuple(overloads) for name, overloads in found.items()}

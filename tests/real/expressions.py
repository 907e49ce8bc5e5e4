"""Expressions in CEL that two servers are asked about, and the objects that hold them."""

from __future__ import annotations

from muster.api.codec import Object, Objects

SAMPLES = (
    "1",
    "2u",
    "1.5",
    "'a'",
    "b'a'",
    "true",
    "null",
    "[1, 2]",
    "['b', 'a']",
    "[[1], [2]]",
    "[dyn(1), dyn('a')]",
    "[optional.of(1)]",
    "{'a': 1}",
    "duration('1h')",
    "timestamp('2026-01-02T03:04:05Z')",
    "optional.of('a')",
    "optional.none()",
    "quantity('1')",
    "semver('1.2.3')",
    "ip('10.0.0.1')",
    "cidr('10.0.0.0/8')",
    "url('https://a:1/b?c=d')",
    "format.uuid()",
    "type(1)",
    "dyn(1)",
    "self",
    "self.list",
    "self.set",
    "self.map",
    "self.text",
    "self.number",
    "self.count",
    "self.flag",
    "self.time",
    "self.span",
    "self.data",
    "self.either",
    "self.items",
    "self.items[0]",
)
"""A value of each type."""
METHODS = """
size contains endsWith startsWith matches charAt indexOf lastIndexOf lowerAscii upperAscii replace split substring trim
format join slice flatten distinct reverse first last sort isSorted min max sum find findAll getScheme getHost
getHostname getPort getEscapedPath getQuery family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast
isGlobalUnicast containsIP containsCIDR ip masked prefixLength isGreaterThan isLessThan compareTo asApproximateFloat
asInteger isInteger sign add sub major minor patch validate hasValue value or orValue unwrapOpt getFullYear getMonth
getDayOfYear getDayOfMonth getDate getDayOfWeek getHours getMinutes getSeconds getMilliseconds includes unknown
"""
FUNCTIONS = """
size type dyn bool bytes double duration int string timestamp uint matches url isURL ip isIP ip.isCanonical cidr isCIDR
quantity isQuantity semver isSemver lists.range sets.contains sets.intersects sets.equivalent optional.of
optional.ofNonZeroValue optional.none optional.unwrap format.named format.dns1123Label strings.quote math.greatest
base64.encode cel.block regex.replace unknown
"""
OPERATORS = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||")
MACROS = """
X.all(a, true)
X.all(a, b, true)
X.exists(a, a)
X.exists(a, b, b)
X.exists_one(a, a == 1)
X.existsOne(a, a == 1)
X.existsOne(a, b, a == b)
X.map(a, a) == []
X.map(a, a > 1, a) == []
X.filter(a, true) == []
X.transformList(a, b, b) == []
X.transformList(a, b, a == b, b) == []
X.transformMap(a, b, b) == {}
X.transformMapEntry(a, b, {b: a}) == {}
X.sortBy(a, a) == []
X.optMap(a, a) == 1
X.optFlatMap(a, a) == 1
has(X.text)
X.text == 'a'
X.?text == 'a'
X[0] == 1
X['a'] == 1
X[?0] == 1
X[?'a'] == 1
[?X] == []
[X, 1] == []
{'a': X, 'b': 1} == {}
{X: 1, 'b': 1} == {}
{?'a': X} == {}
-X == 1
!X
X ? 1 : 2
true ? X : 1
'%s'.format([X]) == ''
'%d'.format([X]) == ''
'%f'.format([X]) == ''
'%e'.format([X]) == ''
'%b'.format([X]) == ''
'%x'.format([X]) == ''
'%o'.format([X]) == ''
X
""".strip().splitlines()


def for_types() -> list[str]:
    """Expressions whose types are right or wrong: each function with a value of each type."""
    found = [macro.replace("X", sample) for macro in MACROS for sample in SAMPLES]
    found += [f"{sample}.{name}()" for name in METHODS.split() for sample in SAMPLES]
    found += [f"{sample}.{name}({sample})" for name in METHODS.split() for sample in SAMPLES]
    found += [f"{sample}.{name}('a')" for name in METHODS.split() for sample in SAMPLES]
    found += [f"{sample}.{name}(0)" for name in METHODS.split() for sample in SAMPLES]
    found += [f"{name}({sample})" for name in FUNCTIONS.split() for sample in SAMPLES]
    found += [f"{name}({sample}, {sample})" for name in FUNCTIONS.split() for sample in SAMPLES]
    found += [f"{one} {operator} {other}" for operator in OPERATORS for one in SAMPLES[:25] for other in SAMPLES[:25]]
    return [f"({text}) == 1 || {text}" if at % 7 == 0 else text for at, text in enumerate(found)]


SYNTAX = (
    "int('x') == 1",
    "int(1e30) == 1",
    "int(-1e30) == 1",
    "int(18446744073709551615u) == 1",
    "uint(-1) == 1u",
    "uint('x') == 1u",
    "uint(-1.0) == 1u",
    "double('x') == 1.0",
    "bool('x')",
    "string(b'\\xff') == 'a'",
    "self.count == 1 || int('x') == 1",
    "int('12') == 12 && bool('true') && uint(3) == 3u",
    "'a'",
    "self.",
    "self..a",
    "self[0",
    "1 +",
    "a b",
    "self.text == 'a",
    "self.all(x)",
    "self.map(1, x)",
    "has(self)",
    "has(self['a'])",
    "x.exists(y, z)",
    "x.exists(y.z, true)",
    "self.text in",
    "self.text ==\n  unknown &&\n  other",
    "'é' == unknown",
    "google.protobuf.Timestamp{}",
    "T{a: 1}",
    "r'\\d' == '\\\\d'",
    "'\\q'",
    "0x1F == 31",
    "99999999999999999999 == 1",
    "1e3 == 1000.0",
    "self.__in__ == 1",
    "self.a__dash__b == 1",
    "self.a-b == 1",
    "oldSelf == self",
    "type(self.list) == list",
    "self == self",
    "self.items == self.list",
    "self.items.all(i, i.name == 'a')",
    "self.items.all(i, i.other == 'a')",
    "self.items.map(i, i.name).exists(n, n == 1)",
    "self.map.all(k, self.map[k] > 1)",
    "self.map.all(k, v, v > 1)",
    "self.either == 1 || self.either == 'a'",
    "self.open == 1",
    "self.matches('[')",
    "'a'.matches('(?<a>b)')",
    "'%q'.format([1]) == ''",
    "'%'.format([1]) == ''",
    "'%.3f %%'.format([1.0]) == ''",
    "'%s %s'.format(['a']) == ''",
    "'%s'.format(self.list) == ''",
    "duration('1x') == duration('1s')",
    "timestamp('2026-13-01T00:00:00Z') == timestamp(0)",
    "cel.bind(x, 1, x == 1)",
    "authorizer.path('/').check('get').allowed()",
    "jsonpatch.escapeKey('a') == 'a'",
    "variables.a == 1",
    "object.a == 1",
)
"""Expressions that are right or wrong in other ways."""
SCHEMA: Object = {
    "type": "object",
    "properties": {
        "list": {"type": "array", "maxItems": 9, "items": {"type": "integer"}},
        "set": {"type": "array", "maxItems": 9, "items": {"type": "string", "maxLength": 9}},
        "map": {"type": "object", "maxProperties": 9, "additionalProperties": {"type": "integer"}},
        "text": {"type": "string", "maxLength": 9},
        "number": {"type": "number"},
        "count": {"type": "integer"},
        "flag": {"type": "boolean"},
        "time": {"type": "string", "format": "date-time", "maxLength": 40},
        "span": {"type": "string", "format": "duration", "maxLength": 40},
        "data": {"type": "string", "format": "byte", "maxLength": 40},
        "either": {"x-kubernetes-int-or-string": True, "maxLength": 40},
        "open": {"x-kubernetes-preserve-unknown-fields": True},
        "in": {"type": "integer"},
        "a-b": {"type": "integer"},
        "items": {
            "type": "array",
            "maxItems": 9,
            "items": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}},
        },
    },
}
SPEC: Object = {
    "list": [3, 1, 2],
    "set": ["b", "a"],
    "map": {"b": 2, "a": 1},
    "text": "text",
    "number": 2,
    "count": 7,
    "flag": True,
    "time": "2026-01-02T03:04:05Z",
    "span": "1h30m",
    "data": "aGk=",
    "either": 5,
    "in": 4,
    "a-b": 6,
    "items": [{"name": "y"}, {"name": "x"}],
}
"""An object of the schema."""
VALUES = """
1 + 2 * 3
7 / 2
-7 / 2
-7 % 3
7.0 / 2.0
1.0 / 0.0
1u + 2u
0.1 + 0.2
1e21
1e-7
100000.0
-0.0
int(2.9)
int(-2.9)
int('12')
uint(3)
double('1.5')
double(3)
string(1.0)
string(1.5)
string(1e100)
string(true)
string(b'abc')
string(12u)
string(timestamp('2026-01-02T03:04:05.5Z'))
string(duration('90m'))
string(duration('1500ms'))
bytes('abc')
bool('true')
type(1)
type('a')
type([])
type({})
type(null)
type(1.5)
type(self.time)
type(self.data)
null
true
'a' + 'b'
"it's"
[1, 2] + [3]
[1, 'a'].map(x, dyn(x))
[dyn(1), dyn('a'), dyn(true), dyn(null), dyn(1.5), dyn(b'x')]
{'b': 1, 'a': [1, 2]}
{1: 'a', 2: 'b'}
{true: 1}
[[1, [2]].map(x, dyn(x))]
timestamp('2026-01-02T03:04:05Z') + duration('1h')
timestamp('2026-01-02T03:04:05Z') - timestamp('2026-01-01T00:00:00Z')
timestamp('2026-01-02T03:04:05Z').getFullYear()
timestamp('2026-01-02T03:04:05Z').getMonth()
timestamp('2026-01-02T03:04:05Z').getDayOfMonth()
timestamp('2026-01-02T03:04:05Z').getDate()
timestamp('2026-01-02T03:04:05Z').getDayOfWeek()
timestamp('2026-01-02T03:04:05Z').getDayOfYear()
timestamp('2026-01-02T03:04:05Z').getHours('Europe/Berlin')
timestamp('2026-01-02T03:04:05Z').getHours('+05:30')
timestamp('2026-01-02T03:04:05.678Z').getMilliseconds()
duration('1h30m').getHours()
duration('1h30m').getMinutes()
duration('1h30m').getSeconds()
duration('1500ms').getMilliseconds()
self.time
self.time.getFullYear()
self.time + self.span
self.span
self.span.getMinutes()
self.data
size(self.data)
self.number
self.count
self.either
self.__in__ + self.a__dash__b
self.list
self.map
self.map.map(k, k).sort()
self.items.map(i, i.name)
size('tschüß')
'tschüß'.charAt(4)
'abc'.indexOf('c')
'abcabc'.indexOf('b', 2)
'abcabc'.lastIndexOf('b')
'abcabc'.lastIndexOf('b', 3)
'abc'.indexOf('')
'Äb'.lowerAscii()
'äb'.upperAscii()
'aaa'.replace('a', 'b')
'aaa'.replace('a', 'b', 2)
'ab'.replace('', '-')
'a,b,c'.split(',')
'a,b,c'.split(',', 2)
'a,b,c'.split(',', 0)
'abc'.split('')
'abc'.substring(1)
'abc'.substring(1, 2)
' a\\t'.trim()
self.set.join()
self.set.join('-')
strings.quote('a"b\\n')
'%s|%s|%s'.format(['a', 1, 1.5])
'%s'.format([1.0])
'%s'.format([12345678.9])
'%s'.format([[1.5, 'a']])
'%s'.format([{'a': 'b'}])
'%s'.format([duration('90m')])
'%s'.format([timestamp('2026-01-02T03:04:05Z')])
'%s'.format([type(1)])
'%s'.format([b'ab'])
'%d %d'.format([1, 2u])
'%f'.format([1.5])
'%.3f'.format([1.0005])
'%.0f'.format([2.5])
'%e'.format([1234.5])
'%.2e'.format([0.000123])
'%b %b'.format([5, true])
'%x %X'.format([255, 255])
'%x'.format(['hi'])
'%X'.format([b'hi'])
'%o'.format([8])
'%d'.format([-5])
'%x'.format([-255])
'100%%'.format([])
'%f'.format([1000000.0])
'%d'.format([1000000])
lists.range(4)
[3, 1, 2].sort()
['b', 'a'].sort()
[3, 1, 2].sortBy(x, -x)
self.items.sortBy(i, i.name).map(i, i.name)
[1, 2, 1].distinct()
[1, 2].reverse()
[[1], [2, 3]].flatten()
[dyn([1]), dyn([[2]])].flatten(2)
[1, 2, 3].slice(1, 3)
[1, 2].first().value()
[1, 2].last().orValue(5)
[].last().hasValue()
[1, 2].sum()
[1.5, 2.0].sum()
[].sum()
[duration('1h'), duration('1m')].sum()
[self.time].max()
[2, 1].min()
self.set.max()
[1, 2, 2].isSorted()
[1, 2, 1].indexOf(1)
[1, 2, 1].lastIndexOf(1)
[1, 2].indexOf(5)
'a1b22'.find('[0-9]+')
'a1b22'.find('x')
'a1b22'.findAll('[0-9]+')
'a1b22'.findAll('[0-9]+', 1)
'a1b22'.findAll('[0-9]+', 0)
url('https://u:p@h:8080/a%20b?c=d&c=e&f').getScheme()
url('https://u:p@h:8080/a%20b?c=d&c=e&f').getHost()
url('https://u:p@h:8080/a%20b?c=d&c=e&f').getHostname()
url('https://u:p@h:8080/a%20b?c=d&c=e&f').getPort()
url('https://u:p@h:8080/a%20b?c=d&c=e&f').getEscapedPath()
url('https://u:p@h:8080/a%20b?c=d&c=e').getQuery()
url('/a').getHost()
url('https://[::1]:80/').getHostname()
isURL('a')
isURL('https://a')
ip('10.0.0.1').family()
string(ip('::ffff:1'))
ip('127.0.0.1').isLoopback()
ip('169.254.1.1').isLinkLocalUnicast()
ip('224.0.0.1').isLinkLocalMulticast()
ip('10.0.0.1').isGlobalUnicast()
ip.isCanonical('::0001')
isIP('010.0.0.1')
isIP('::ffff:1.2.3.4')
string(cidr('10.1.2.3/8').masked())
cidr('10.0.0.0/8').prefixLength()
cidr('10.0.0.0/8').containsIP('10.1.1.1')
cidr('10.0.0.0/8').containsIP(ip('11.1.1.1'))
cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')
string(cidr('10.1.2.3/8').ip())
isCIDR('10.0.0.0')
quantity('1Gi').compareTo(quantity('1024Mi'))
quantity('1.5').asApproximateFloat()
quantity('1500m').isInteger()
quantity('2k').asInteger()
sign(quantity('-1'))
quantity('1').add(quantity('500m')).isGreaterThan(quantity('1'))
quantity('1').add(2).asInteger()
quantity('5').sub(2).asInteger()
quantity('1') == quantity('1000m')
isQuantity('1Zi')
isQuantity('1e3')
semver('1.2.3-a+b').minor()
semver('v1.2', true).patch()
semver('1.2.3').compareTo(semver('1.2.3-rc1'))
isSemver('v1.0.0')
isSemver('v1', true)
format.dns1123Label().validate('a').hasValue()
format.dns1123Label().validate('a.b').value()
format.dns1123Subdomain().validate('A').value()
format.dns1035Label().validate('1a').value()
format.qualifiedName().validate('a/b/c').value()
format.qualifiedName().validate('').value()
format.labelValue().validate('-').value()
format.dns1123LabelPrefix().validate('a-').hasValue()
format.dns1123SubdomainPrefix().validate('a.-').hasValue()
format.dns1035LabelPrefix().validate('-').value()
format.uri().validate('a b').value()
format.uri().validate('').value()
format.uri().validate('https://a/b').hasValue()
format.uuid().validate('x').value()
format.byte().validate('!').value()
format.date().validate('2026-02-30').value()
format.datetime().validate('2026-02-30').value()
format.datetime().validate('2026-02-03T04:05:06Z').hasValue()
format.named('uuid').hasValue()
format.named('none').hasValue()
sets.contains([1, 2], [2])
sets.contains([dyn(1), dyn('a')], [dyn(1.0)])
sets.equivalent([1], [1, 1])
sets.intersects([1], [2])
optional.of(1).value()
optional.ofNonZeroValue(0).hasValue()
optional.none().hasValue()
optional.of(1).or(optional.of(2)).value()
optional.unwrap([optional.of(1), optional.none()])
[optional.of(1), optional.none()].unwrapOpt()
optional.of(2).optMap(x, x * 2).value()
optional.of(2).optFlatMap(x, optional.of(x)).value()
{'a': 1}.?b.orValue(5)
{'a': {'b': 1}}.?a.?b.value()
[1][?3].hasValue()
[?optional.of(1), ?optional.none(), 2].map(x, x)
{?'a': optional.none(), 'b': 1}.transformMap(k, v, v)
[1, 2].all(i, v, v == i + 1)
[1, 2].exists(i, v, v == 2 && i == 1)
[1, 2].existsOne(i, v, v > 1)
[1, 2].exists_one(i, v, v > 0)
{'a': 1}.all(k, v, k == 'a' && v == 1)
[1, 2].transformList(i, v, i * v)
[1, 2].transformList(i, v, i > 0, v)
{'a': 1}.transformList(k, v, k)
{'a': 1}.transformMap(k, v, v + 1)
[1, 2].transformMap(i, v, v > 1, v)
{'a': 'b'}.transformMapEntry(k, v, {v: k})
dyn(1) == 1.0
1 < 1.5
dyn(1u) == 1
dyn(1) == dyn(1.0)
[dyn(1)] == [1.0]
{'a': dyn(1)} == {'a': 1.0}
dyn(1) in [1.0, 2.0]
'a' in {'a': 1}
dyn('a') == dyn(1)
true ? 1 : 2
false || true
""".strip().splitlines()
"""Expressions with a value that is shown as text."""
FAILING = """
1 / 0 == 1
1 % 0 == 1
1u / 0u == 1u
9223372036854775807 + 1 == 0
-9223372036854775808 - 1 == 0
9223372036854775807 * 2 == 0
0u - 1u == 0u
[1][3] == 1
[1][-1] == 1
{'a': 1}['b'] == 1
{'a': 1}.b == 1
self.map['zz'] == 1
self.map.zz == 1
dyn('a') + dyn(1) == dyn(1)
dyn(1) < dyn('a')
!dyn(1)
dyn('a') && true
dyn('a') ? true : false
dyn(1).startsWith('a')
[1, 2].all(x, 1 / (x - 1) == 1)
[1, 2].exists(x, 1 / (x - 1) == 1)
1 / 0 == 1 || true
1 / 0 == 1 && false
timestamp(self.text) == timestamp(0)
duration(self.text) == duration('1s')
[1].slice(0, 5) == []
[1].slice(-1, 0) == []
[dyn(1), dyn('a')].sort() == []
[].min() == 1
[].max() == 1
[dyn([1])].flatten(-1) == []
optional.none().value() == 1
url('a b') == url('a')
ip('x') == ip('y')
cidr('x') == cidr('y')
quantity('x') == quantity('y')
quantity('1.5').asInteger() == 1
semver('x') == semver('y')
{'a': 1}.transformMapEntry(k, v, {'x': 1, 'y': 2}) == {}
['a', 'a'].transformMapEntry(i, v, {v: i}) == {}
'%d'.format([dyn('a')]) == ''
'%f'.format([dyn('a')]) == ''
timestamp('9999-12-31T23:59:59Z') + duration('1h') == timestamp(0)
self.list[7] == 1
self.items[5].name == ''
self.items[0].name == 'y' && self.list[0] == 4
""".strip().splitlines()
"""Rules that fail, by their value or for want of one."""
SELECTORS = """
device.attributes['a'].b
device.attributes['a'].b == 1
device.attributes['a'].b == 'x' && device.attributes['a'].c
device.attributes['a'].b.zz == 1
device.attributes['a'].b.all(x, true)
'x' in device.attributes['a'].b
device.attributes['a'].b + 1 == 2
device.attributes['a'].b.isGreaterThan(semver('1.0.0'))
device.attributes['a']
device.attributes
device.capacity['a'].b
device.capacity['a'].b > quantity('1')
device.capacity['a'].b.compareTo(quantity('1')) >= 0
device.capacity.x == 1
device.driver
device.driver == 1
device.driver == 'x'
device.allowMultipleAllocations
device
device.zz
device.all(x, true)
dyn(1)
'a'
5
{'a': 1}
[1, 'a'] == []
semver('1') == 1
cel.bind(x, 1, x == 1)
cel.bind(x, device.attributes['a'], has(x.b) && x.b == 1)
math.greatest(1, 2) == 2
device.attributes[?'a'].?b.orValue(1) == 1
bool('x')
int(1e30) == 1
device.attributes.all(k, v, k == 'a')
format.uuid().validate('a').hasValue()
claims.a == 1
self.a == 1
""".strip().splitlines()


def definition(rules: Objects) -> Object:
    """A definition of a kind with these rules."""
    spec = {**SCHEMA, "x-kubernetes-validations": rules}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "judged.cel.test"},
        "spec": {
            "group": "cel.test",
            "scope": "Cluster",
            "names": {"plural": "judged", "singular": "judged", "kind": "Judged", "listKind": "JudgedList"},
            "versions": [version],
        },
    }


def claim(selectors: list[str]) -> Object:
    """A claim with these selectors."""
    request = {"deviceClassName": "c", "selectors": [{"cel": {"expression": text}} for text in selectors]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}},
    }

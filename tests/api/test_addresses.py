"""URLs, addresses and networks in expressions."""

from __future__ import annotations

import pytest

from muster.api.codec import JSON
from muster.api.expressions import EvaluationFailed, compile_expression


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("url('https://u@h.test:8443/p/q?a=1&a=2').getHost()", "h.test:8443"),
        ("url('https://h.test:8443/p').getHostname()", "h.test"),
        ("url('https://[::1]:80/').getHostname()", "::1"),
        ("url('https://h.test/').getPort()", ""),
        ("url('https://h.test/a b'.replace(' ', '%20')).getEscapedPath()", "/a%20b"),
        ("url('/only/a/path').getScheme()", ""),
        ("url('https://h.test/?a=1&a=2').getQuery()['a']", ["1", "2"]),
        ("isURL('v12x345')", False),
        ("ip('::1').isLoopback() && ip('::1').family() == 6", True),
        ("isIP('::ffff:1.2.3.4')", False),
        ("isIP('01.2.3.4')", False),
        ("ip.isCanonical('2001:DB8::1')", False),
        ("ip('10.0.0.1').isGlobalUnicast()", True),
        ("ip('169.254.1.1').isLinkLocalUnicast()", True),
        ("ip('224.0.0.5').isLinkLocalMulticast()", True),
        ("cidr('10.0.0.0/8').containsIP('10.2.3.4')", True),
        ("cidr('10.0.0.0/8').containsIP(ip('11.2.3.4'))", False),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", True),
        ("cidr('10.0.0.0/16').containsCIDR(cidr('10.0.0.0/8'))", False),
        ("cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')", True),
        ("cidr('10.1.2.3/8').ip() == ip('10.1.2.3')", True),
        ("cidr('192.168.0.0/24').prefixLength()", 24),
        ("isCIDR('10.0.0.0')", False),
        ("[3, 1, 2].sort() == [1, 2, 3] && [1, 1].distinct() == [1]", True),
        ("[dyn([1]), dyn([[2]])].flatten(2)", [1, 2]),
        ("sets.contains([1, 2], [1]) && !sets.intersects([1], [2]) && sets.equivalent([1, 2], [2, 1, 1])", True),
        ("'a1b2'.findAll('[0-9]', 1)", ["1"]),
    ],
)
def test_expressions_know_addresses_and_lists(text: str, want: JSON) -> None:
    assert compile_expression(text).evaluate({"self": None}) == want


@pytest.mark.parametrize("text", ["ip('x')", "cidr('10.0.0.0/33')", "url('x')", "[1].slice(0, 2)"])
def test_what_is_none_is_an_error(text: str) -> None:
    with pytest.raises(EvaluationFailed):
        compile_expression(text).evaluate({"self": None})

"""The standard claims of a token: who it is for, and from when until when."""

from __future__ import annotations

import pytest

from muster.api.codec import JSON
from muster.apiserver.authentication.claims import check_id_token
from muster.apiserver.authentication.signatures import Token, TokenError

NOW = 1_000_000.0


def token(**claims: JSON) -> Token:
    return Token({"alg": "RS256"}, {"aud": "kube", "exp": NOW + 60, **claims}, b"", b"")


@pytest.mark.parametrize("expires", [NOW + 1, str(int(NOW) + 1), NOW + 0.5, 1e18])
def test_a_token_is_good_until_it_expires(expires: JSON) -> None:
    check_id_token(token(exp=expires), ["kube"], NOW)


@pytest.mark.parametrize("expires", [NOW - 1, None, True, "nan", "inf", "1_000_001", " 1000001", [], "", -1])
def test_a_token_that_is_expired_or_does_not_say_when_is_refused(expires: JSON) -> None:
    with pytest.raises(TokenError):
        check_id_token(token(exp=expires), ["kube"], NOW)


@pytest.mark.parametrize(("begins", "want"), [(NOW + 60, True), (NOW + 61, False), (0, True), ("nan", False)])
def test_a_token_may_begin_within_a_minute(begins: JSON, want: bool) -> None:
    try:
        check_id_token(token(nbf=begins), ["kube"], NOW)
    except TokenError:
        assert not want
    else:
        assert want


@pytest.mark.parametrize(
    ("stated", "want"), [("kube", True), (["x", "kube"], True), ("x", False), ([], False), (["kube", 5], False)]
)
def test_a_token_must_be_for_one_of_the_audiences(stated: JSON, want: bool) -> None:
    try:
        check_id_token(token(aud=stated), ["kube", "other"], NOW)
    except TokenError:
        assert not want
    else:
        assert want

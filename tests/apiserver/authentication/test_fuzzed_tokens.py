"""Whatever is sent as a token or a configuration, it is judged and never makes a traceback."""

from __future__ import annotations

import asyncio
import base64
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.codec import JSON
from muster.apiserver.authentication.accounts import Accounts, SigningKey
from muster.apiserver.authentication.chain import Authenticator
from muster.apiserver.authentication.claims import user_of
from muster.apiserver.authentication.configuration import (
    AuthenticationConfiguration,
    ClaimMappings,
    ConfigurationError,
    ExtraMapping,
    JWTAuthenticator,
    PrefixedClaim,
    decode_configuration,
)
from muster.apiserver.authentication.signatures import KeySetError, TokenError, is_signed_by, parse_keys, parse_token
from muster.apiserver.authentication.validation import check_configuration
from muster.apiserver.store.memory import MemoryStore
from muster.clock import RealClock

KEY = SigningKey.generate()
ISSUER = "https://issuer.test"
NAMES = st.sampled_from(["iss", "sub", "aud", "exp", "nbf", "jti", "groups", "kubernetes.io", "email", "_claim_names"])
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES | st.text(), VALUES, max_size=6)


def encoded(value: JSON) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def authenticator() -> Authenticator:
    return Authenticator(MemoryStore(), RealClock(), accounts=Accounts(lambda: KEY, ISSUER))


@given(st.text() | st.text("abcdefghijklmnopqrstuvwxyz0123456789-_=.", max_size=60))
def test_any_text_is_a_token_that_is_refused(text: str) -> None:
    assert asyncio.run(authenticator().review(text)).user is None


@given(OBJECTS, OBJECTS, st.binary(max_size=20))
def test_any_header_and_claims_are_refused_without_a_signature(
    header: dict[str, JSON], claims: dict[str, JSON], signature: bytes
) -> None:
    tail = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    token = f"{encoded({'alg': 'RS256', **header})}.{encoded({'iss': ISSUER, **claims})}.{tail}"
    assert asyncio.run(authenticator().review(token)).user is None


@given(OBJECTS)
@settings(max_examples=50)
def test_signed_nonsense_is_nobody(claims: dict[str, JSON]) -> None:
    """Even what we sign ourselves must say all that a token of an account says."""
    token = KEY.sign({**claims, "iss": ISSUER})
    assert asyncio.run(authenticator().review(token)).user is None


@given(OBJECTS)
def test_any_key_set_is_read_or_refused(document: dict[str, JSON]) -> None:
    token = parse_token(KEY.sign({"iss": ISSUER}))
    assert token is not None
    try:
        keys = parse_keys(json.dumps({"keys": [{"kty": "RSA", **document}], **document}).encode())
    except KeySetError:
        return
    assert not is_signed_by(token, keys)


CHECKED = check_configuration(
    AuthenticationConfiguration(
        (
            JWTAuthenticator(
                claim_mappings=ClaimMappings(
                    PrefixedClaim(expression="claims.?sub.orValue(claims.email)"),
                    PrefixedClaim("groups", ""),
                    extra=(ExtraMapping("example.org/x", "claims.?jti.orValue([])"),),
                )
            ),
        )
    )
)[0].issuers[0]


@given(OBJECTS)
def test_any_claims_make_a_user_or_none(claims: dict[str, JSON]) -> None:
    try:
        user = user_of(CHECKED, json.loads(json.dumps(claims)))
    except TokenError:
        return
    assert isinstance(user.name, str) and all(isinstance(group, str) for group in user.groups)


@given(st.text() | OBJECTS.map(json.dumps))
def test_any_text_is_a_configuration_or_is_refused(text: str) -> None:
    try:
        check_configuration(decode_configuration(text))
    except ConfigurationError:
        return


@given(VALUES, VALUES)
def test_any_value_of_a_field_is_judged(jwt: JSON, anonymous: JSON) -> None:
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    try:
        check_configuration(decode_configuration(json.dumps({**head, "jwt": jwt, "anonymous": anonymous})))
    except ConfigurationError:
        return

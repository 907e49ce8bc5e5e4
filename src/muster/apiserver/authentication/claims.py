"""From the claims of a verified token to a user: the checks of an ID token, mappings and rules.

Source: apiserver `plugin/pkg/authenticator/token/oidc`, go-oidc's `Verify`, and recordings. All functions are pure and
raise `TokenError`; the messages are upstream's and go to the log only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from muster.api.codec import JSON, Object
from muster.api.expressions import EvaluationFailed, NotSupported
from muster.apiserver.authentication.configuration import ClaimMappings, ClaimRule, PlainClaim, PrefixedClaim
from muster.apiserver.authentication.expressions import Compiled
from muster.apiserver.authentication.signatures import ALGORITHMS, Token, TokenError
from muster.apiserver.authentication.users import CREDENTIAL_ID
from muster.apiserver.authentication.validation import Checked
from muster.apiserver.request import User

NOT_BEFORE_LEEWAY_S = 60.0
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
"""What JSON calls a number: `nan` would never expire."""
_GOOGLE = {"accounts.google.com": "https://accounts.google.com"}


def issuer_of(token: Token) -> str:
    """The issuer that the token names; "" if it names none."""
    found = _field(token.claims, "iss")
    return _GOOGLE.get(found, found) if isinstance(found, str) else ""


def check_id_token(token: Token, audiences: Sequence[str], now: float, algorithms: Sequence[str] = ALGORITHMS) -> None:
    """What must hold of the standard claims before the signature is looked at. Raises `TokenError`."""
    claims = token.claims
    for name in ("iss", "sub", "nonce", "at_hash"):
        value = _field(claims, name)
        if value is not None and not isinstance(value, str):
            raise TokenError(f"oidc: verify token: oidc: failed to unmarshal claims: {name} is not a string")
    stated = _audiences(_field(claims, "aud"))
    expires, not_before = (_time(claims, name) for name in ("exp", "nbf"))
    _time(claims, "iat")
    if not set(stated) & set(audiences):
        wanted = " ".join(f'"{each}"' for each in sorted(audiences))
        expected = f"expected audience {wanted}" if len(audiences) == 1 else f"expected audience in [{wanted}]"
        got = " ".join(f'"{each}"' for each in stated)
        raise TokenError(f"oidc: verify token: oidc: {expected} got [{got}]")
    if expires is None or now > expires:
        raise TokenError("oidc: verify token: oidc: token is expired")
    if not_before is not None and now + NOT_BEFORE_LEEWAY_S < not_before:
        raise TokenError("oidc: verify token: oidc: current time before the nbf (not before) time")
    _check_sources(claims)
    if token.algorithm not in algorithms:
        expected = " ".join(f'"{name}"' for name in algorithms)
        raise TokenError(
            "oidc: verify token: oidc: id token signed with unsupported algorithm, "
            f'expected [{expected}] got "{token.algorithm}"'
        )


def _field(claims: Object, name: str) -> JSON:
    """A standard claim; its name is taken in any case, and the last one counts, as in Go."""
    return next((value for key, value in reversed(list(claims.items())) if key.lower() == name), None)


def _audiences(value: JSON) -> list[str]:
    if value is None:
        return []
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) or (each is None and isinstance(value, list)) for each in listed):
        raise TokenError("oidc: verify token: oidc: failed to unmarshal claims: aud is not of type string")
    return [each or "" for each in listed]


def _time(claims: Object, name: str) -> float | None:
    """A time in seconds, given as a number or as the text of one. Raises `TokenError`."""
    if not any(key.lower() == name for key in claims):
        return None
    value = _field(claims, name)
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            raise ValueError
        return float(value)
    except (ValueError, OverflowError) as error:
        raise TokenError(f"oidc: verify token: oidc: failed to unmarshal claims: {name} is not a time") from error


def _check_sources(claims: Object) -> None:
    """Claims that are elsewhere must say where."""
    names, sources = claims.get("_claim_names") or {}, claims.get("_claim_sources") or {}
    if not isinstance(names, dict) or not isinstance(sources, dict):
        raise TokenError("oidc: verify token: oidc: failed to unmarshal claims")
    if any(source not in sources for source in names.values() if isinstance(source, str)):
        raise TokenError("oidc: verify token: oidc: source does not exist")


def source_of(claims: Object, claim: str) -> tuple[str, str] | None:
    """Where a claim is that is not here: a URL, and the token to send there. Raises `TokenError`."""
    names = claims.get("_claim_names")
    if claim in claims or not isinstance(names, dict) or claim not in names:
        return None
    sources, name = claims.get("_claim_sources"), names[claim]
    source = sources.get(name) if isinstance(sources, dict) and isinstance(name, str) else None
    if not isinstance(source, dict):
        why = f"id token _claim_names contained a source {name} missing in _claims_sources"
        raise TokenError(f"oidc: could not expand distributed claims: {why}")
    url, bearer = source.get("endpoint"), source.get("access_token")
    if not isinstance(url, str) or not url:
        return None  # a claim that is in the token in another form, which upstream does not take
    return url, bearer if isinstance(bearer, str) else ""


def user_of(checked: Checked, claims: Object, distributed: Mapping[str, JSON] | None = None) -> User:
    """The user that the claims of a verified token make, after all rules. Raises `TokenError`.

    `distributed`: claims that were fetched from elsewhere, which expressions do not see.
    """
    mappings = checked.rules.claim_mappings
    seen = as_seen(claims)
    try:
        name = _username(checked, mappings.username, claims, seen)
        groups = _groups(checked, mappings.groups, {**claims, **(distributed or {})}, seen)
        uid = _uid(checked, mappings.uid, claims, seen)
        extra = _extra(checked, mappings, seen)
        if isinstance(claims.get("jti"), str) and claims["jti"]:
            extra[CREDENTIAL_ID] = (f"JTI={claims['jti']}",)
        _check_claims(checked, checked.rules.claim_validation_rules, claims, seen)
        user = User(name, tuple(groups), uid, extra)
        _check_user(checked, user)
    except EvaluationFailed as error:
        raise TokenError(f"oidc: error evaluating claim expression: {error}") from error
    return user


def as_seen(value: JSON) -> JSON:
    """Claims as expressions see them: every number is a double."""
    if isinstance(value, dict):
        return {key: as_seen(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_seen(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _text_claim(claims: Object, name: str, what: str) -> str:
    """A claim that must be there; null is an empty text, as in Go."""
    if name not in claims:
        raise TokenError(f'oidc: parse {what} "{name}": claim not present')
    value = claims[name]
    if value is not None and not isinstance(value, str):
        raise TokenError(f'oidc: parse {what} "{name}": json: cannot unmarshal into Go value of type string')
    return value or ""


def _value(compiled: Compiled, seen: JSON, what: str) -> JSON:
    """The value of an expression; what has no form in JSON is none of the types that are wanted."""
    assert isinstance(seen, dict)
    try:
        return compiled.evaluate(seen)
    except NotSupported as error:
        raise TokenError(f"oidc: error evaluating {what} claim expression: {error}") from error


def _username(checked: Checked, mapping: PrefixedClaim, claims: Object, seen: JSON) -> str:
    if mapping.expression:
        value = _value(checked.claims(mapping.expression), seen, "username")
        if not isinstance(value, str):
            raise TokenError(
                "oidc: error evaluating username claim expression: username claim expression must return a string"
            )
        if not value:
            raise TokenError("oidc: empty username via CEL expression is not allowed")
        return value
    name = _text_claim(claims, mapping.claim, "username claims")
    if mapping.claim == "email" and "email_verified" in claims:
        verified = claims["email_verified"]
        if verified is not None and not isinstance(verified, bool):
            raise TokenError("oidc: parse 'email_verified' claim: json: cannot unmarshal into Go value of type bool")
        if not verified:
            raise TokenError("oidc: email not verified")
    return (mapping.prefix or "") + name


def _groups(checked: Checked, mapping: PrefixedClaim, claims: Object, seen: JSON) -> list[str]:
    if mapping.expression:
        compiled = checked.claims(mapping.expression)
        return _texts(compiled, _value(compiled, seen, "group"), "error evaluating group claim expression")
    if not mapping.claim:
        return []
    value = claims.get(mapping.claim)
    if value is None:
        return []
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) or (each is None and isinstance(value, list)) for each in listed):
        raise TokenError(f'oidc: parse groups claim "{mapping.claim}": json: cannot unmarshal into type string')
    return [(mapping.prefix or "") + (each or "") for each in listed]


def _texts(compiled: Compiled, value: JSON, what: str) -> list[str]:
    """A text or a list of texts, without those that are empty."""
    listed = value if isinstance(value, list) else [] if value is None else [value]
    if compiled.returns_go_list or not all(isinstance(each, str) for each in listed):
        raise TokenError(f"oidc: {what}: expression must return a string or a list of strings")
    return [each for each in listed if each]


def _uid(checked: Checked, mapping: PlainClaim, claims: Object, seen: JSON) -> str:
    if mapping.expression:
        value = _value(checked.claims(mapping.expression), seen, "uid")
        if not isinstance(value, str):
            raise TokenError("oidc: error evaluating uid claim expression: uid claim expression must return a string")
        return value
    return _text_claim(claims, mapping.claim, "uid claim") if mapping.claim else ""


def _extra(checked: Checked, mappings: ClaimMappings, seen: JSON) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for mapping in mappings.extra:
        compiled = checked.claims(mapping.value_expression)
        what = f"error evaluating extra claim expression: {compiled.text}"
        values = _texts(compiled, _value(compiled, seen, "extra"), what)
        if values:
            extra[mapping.key] = tuple(values)
    return extra


def _check_claims(checked: Checked, rules: Sequence[ClaimRule], claims: Object, seen: JSON) -> None:
    for rule in rules:
        if not rule.claim:
            continue
        if rule.claim not in claims:
            raise TokenError(f"oidc: required claim {rule.claim} not present in ID token")
        value = claims[rule.claim]
        if value is not None and not isinstance(value, str):
            raise TokenError(f"oidc: parse claim {rule.claim}: json: cannot unmarshal into Go value of type string")
        if (value or "") != rule.required_value:
            got = f"Got = {value or ''}, want = {rule.required_value}"
            raise TokenError(f"oidc: required claim {rule.claim} value does not match. {got}")
    for rule in rules:
        if rule.expression:
            value = _value(checked.claims(rule.expression), seen, "validation")
            _check_true(value, rule.expression, rule.message, "claim validation expression")


def _check_user(checked: Checked, user: User) -> None:
    if not checked.rules.user_validation_rules:
        return
    extra: Mapping[str, JSON] = {key: list(values) for key, values in user.extra.items()}
    seen: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": dict(extra)}
    for rule in checked.rules.user_validation_rules:
        value = _value(checked.user(rule.expression), seen, "user")
        _check_true(value, rule.expression, rule.message, "user info validation rule")


def _check_true(value: JSON, text: str, message: str, what: str) -> None:
    if value is not True:
        raise TokenError(f"oidc: error evaluating {what}: validation expression '{text}' failed: {message}")

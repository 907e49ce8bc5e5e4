"""JSON Web Tokens in compact form, and whether a key of a set made their signature.

The cryptography is PyJWT's. What counts as a token, which keys are tried, and what a key set may hold follow upstream's
libraries (go-jose and go-oidc) as recorded. Never raises anything else than `TokenError` for a token.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct

from muster.api.codec import JSON, Object, loads

if TYPE_CHECKING:
    from jwt.algorithms import Algorithm

ALGORITHMS = ("ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512")
_PART = re.compile(r"[A-Za-z0-9_-]*")
_KEY_TYPES = ("RSA", "EC", "OKP", "oct")


class TokenError(Exception):
    """A token is not accepted; the message goes to the log only. Not retryable."""


class KeySetError(Exception):
    """A document is not a set of keys. Retryable later."""


class Token(Struct, frozen=True):
    """A token whose signature is not checked yet."""

    header: Object
    claims: Object
    signed: bytes
    signature: bytes

    @property
    def algorithm(self) -> str:
        return _text(self.header.get("alg"))

    @property
    def key_id(self) -> str:
        return _text(self.header.get("kid"))


class Key(Struct, frozen=True):
    """A public key as a JSON Web Key."""

    key_id: str
    type_: str
    jwk: Object


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else ""


def parse_token(text: str) -> Token | None:
    """The token in a text; None if it is none (three parts in base64url, header and claims JSON objects)."""
    parts = text.split(".")
    if len(parts) != 3 or not all(_PART.fullmatch(part) for part in parts):
        return None
    try:
        header, payload, signature = (_decoded(part) for part in parts)
        head, claims = loads(header), loads(payload)
    except (binascii.Error, ValueError, DecodeError, RecursionError):
        return None
    if not isinstance(head, dict) or not isinstance(claims, dict):
        return None
    return Token(head, claims, text[: len(parts[0]) + 1 + len(parts[1])].encode(), signature)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def parse_keys(document: bytes) -> list[Key]:
    """The keys of a JSON Web Key Set. Raises `KeySetError`, also if a single one is of an unknown type."""
    try:
        body = loads(document)
    except (ValueError, DecodeError, RecursionError) as error:
        raise KeySetError("could not unmarshal as JSON") from error
    listed = body.get("keys") if isinstance(body, dict) else None
    if listed is None:
        listed = []
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise KeySetError("could not unmarshal as JSON")
    for entry in listed:
        if entry.get("kty") not in _KEY_TYPES:
            raise KeySetError(f"unknown json web key type '{entry.get('kty')}'")
    return [Key(_text(entry.get("kid")), entry["kty"], entry) for entry in listed]


def is_signed_by(token: Token, keys: Sequence[Key]) -> bool:
    """Whether one of the keys made the signature; those of the token's `kid` only, if it names one."""
    if token.algorithm not in ALGORITHMS:
        return False
    chosen = [key for key in keys if not token.key_id or key.key_id == token.key_id]
    return any(_verifies(token, key) for key in chosen)


@cache
def _algorithm(name: str) -> Algorithm:
    from jwt.algorithms import get_default_algorithms

    return get_default_algorithms()[name]


def _verifies(token: Token, key: Key) -> bool:
    if key.type_ != ("EC" if token.algorithm.startswith("E") else "RSA"):
        return False
    from jwt.exceptions import PyJWTError

    algorithm = _algorithm(token.algorithm)
    try:
        return algorithm.verify(token.signed, algorithm.from_jwk(key.jwk), token.signature)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return False

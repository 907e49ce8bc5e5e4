"""Issuers of tokens as recordings describe them: their keys, what they publish, and the tokens that they make.

There are no sockets: `Issuers.fetch` answers as their servers would, and looks at certificates as TLS would.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TypeAlias, cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import get_default_algorithms

from muster.api.codec import JSON, Object, dumps
from muster.apiserver.authentication.issuers import Fetched, FetchError
from muster.clock import Clock

PrivateKey: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
CURVES: Mapping[str, ec.EllipticCurve] = {"ec1": ec.SECP256R1(), "ec384": ec.SECP384R1(), "ec521": ec.SECP521R1()}


@cache
def private_key(name: str) -> PrivateKey:
    """The key of that name; made once."""
    if name in CURVES:
        return ec.generate_private_key(CURVES[name])
    if name == "ed1":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def authority(name: str) -> str:
    """The certificate of a CA, as PEM."""
    return _authority(name)[1].public_bytes(Encoding.PEM).decode()


@cache
def _authority(name: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = _builder(subject, subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return key, builder.sign(key, SHA256())


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    begins = datetime(2020, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(1).not_valid_before(begins).not_valid_after(begins + timedelta(days=36500))


def client_certificate(described: Object) -> bytes:
    """The certificate that a recording describes, in DER."""
    key, issuer = _authority(described["ca"])
    names = [x509.NameAttribute(x509.NameOID.COMMON_NAME, described["cn"])] if described["cn"] else []
    names += [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, each) for each in described.get("o") or ()]
    own = ec.generate_private_key(ec.SECP256R1())
    return _builder(x509.Name(names), issuer.subject, own.public_key()).sign(key, SHA256()).public_bytes(Encoding.DER)


def jwk_of(entry: Object) -> Object:
    """A published key."""
    name = entry["key"]
    algorithm = {"ed1": "EdDSA", "ec1": "ES256", "ec384": "ES384", "ec521": "ES512"}.get(name, "RS256")
    public = private_key(name).public_key()
    jwk = get_default_algorithms()[algorithm].to_jwk(public, as_dict=True)
    kid = entry.get("kid", name)
    jwk = {**jwk, "use": "sig", **({"kid": kid} if kid is not False else {})}
    jwk.pop("key_ops", None)
    return {**jwk, **({"alg": entry["alg"]} if "alg" in entry else {}), **(entry.get("more") or {})}


class Issuers:
    """The issuers of one case, by placeholder."""

    def __init__(self, described: Mapping[str, Object], clock: Clock) -> None:
        self._clock = clock
        self._state = {name: dict(one) for name, one in described.items()}
        self._kept: dict[str, str] = {}
        self.values = {"{ca}": authority("first"), "{ca2}": authority("second")}
        for number, name in enumerate(("issuer", "issuer2", "issuer3")):
            one = self._state.get(name, {})
            base = f"https://127.0.0.1:{40001 + number}/{name}"
            self.values[f"{{{name}}}"] = one.get("url") or base + ("/" if one.get("slash") else "")
            self._state.setdefault(name, {"jwks": [{"key": "rsa1"}]})
            self._state[name]["base"] = base
            if "discovery_path" in one:
                self.values["{discovery}"] = f"https://127.0.0.1:{40001 + number}{one['discovery_path']}"

    def set(self, name: str, changes: Object) -> None:
        """Change an issuer."""
        self._state[name].update(changes)

    def filled(self, value: JSON) -> JSON:
        """A value with everything in place of placeholders."""
        if isinstance(value, str):
            for name, text in self.values.items():
                value = value.replace(name, text)
            return value
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        return value

    async def fetch(self, url: str, certificate_authority: str, bearer: str = "") -> Fetched:
        """What the issuer at a URL answers."""
        await self._clock.sleep(0.01)
        for name, one in self._state.items():
            root = one["base"].removesuffix(f"/{name}")
            if url.startswith(f"{root}/"):
                second = one.get("server") == 2
                if authority("second" if second else "first") not in certificate_authority:
                    why = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
                    raise FetchError(f'Get "{url}": {why}')
                return self._answer(name, one, url.removeprefix(root))
        raise FetchError(f'Get "{url}": dial tcp: connect: connection refused')

    def _answer(self, name: str, one: Object, path: str) -> Fetched:
        headers = {"content-type": "application/json"}
        down = Fetched(503, headers, b'{"error": "down"}')
        if one.get("down"):
            return down
        discovery = one.get("discovery_path", f"/{name}/.well-known/openid-configuration")
        if path == f"/{name}/keys":
            if one.get("jwks_down"):
                return down
            keys = dumps({"keys": [jwk_of(entry) for entry in one["jwks"]]})
            extra = {key.lower(): value for key, value in (one.get("jwks_headers") or {}).items()}
            return Fetched(200, {**headers, **extra}, keys)
        if path == f"/{name}/claims" and "claims_token" in one:
            return Fetched(200, headers, self.token(one["claims_token"]).encode())
        if path != discovery:
            return Fetched(404, headers, b"not found")
        url = self.values[f"{{{name}}}"] + ("/" if one.get("discovery_issuer_slash") else "")
        document: Object = {"issuer": url, "jwks_uri": f"{one['base']}/keys"}
        document |= one.get("discovery") or {}
        document = {key: value for key, value in document.items() if value is not None}
        text = one.get("text")
        return Fetched(one.get("code", 200), headers, text.encode() if text else dumps(document))

    def token(self, described: Object) -> str:
        """The token that a recording describes."""
        if "kept" in described:
            return self._kept[described["kept"]]
        if "raw" in described:
            return cast(str, described["raw"])
        header = cast(Object, self.filled(described["header"]))
        claims = cast(Object, self._timed(self.filled(described["claims"])))
        if "pad" in described:
            claims["pad"] = "x" * described["pad"]
        payload = cast(str, self.filled(described.get("payload_text", ""))).encode() or dumps(claims)
        signed = f"{encoded(dumps(header))}.{encoded(payload)}"
        signature = encoded(_signature(header.get("alg", ""), described["key"], signed.encode()))
        return _mutated(signed, signature, claims, described.get("mutate", ""))

    def keep(self, name: str, token: str) -> None:
        """Remember a token for a later step."""
        self._kept[name] = token

    def _timed(self, value: JSON) -> JSON:
        """Claims with times in place of `now+300` and the like."""
        if isinstance(value, dict):
            return {key: self._timed(item) for key, item in value.items()}
        if not isinstance(value, str) or "now" not in value:
            return value
        form, _, text = value.rpartition(":")
        if not text.startswith("now") or form not in ("", "str", "float"):
            return value
        when = int(self._clock.now()) + int(text.removeprefix("now") or 0)
        return {"": when, "str": str(when), "float": when + 0.5}[form]


def _signature(algorithm: str, key: str, signed: bytes) -> bytes:
    if key == "none":
        return b""
    if algorithm.startswith("HS"):
        secret = key.encode()
        if key.startswith(("rsa", "ec")):
            public = private_key(key).public_key()
            secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return hmac.new(secret, signed, hashlib.sha256).digest()
    return get_default_algorithms()[algorithm or "RS256"].sign(signed, private_key(key))


def _mutated(signed: str, signature: str, claims: Object, mutation: str) -> str:
    header, payload = signed.split(".")
    match mutation:
        case "payload":
            payload = encoded(dumps({**claims, "sub": "intruder"}))
        case "truncate":
            signature = signature[:-6]
        case "two-parts":
            return signed
        case "four-parts":
            return f"{signed}.{signature}.x"
        case "padding":
            payload += "=" * (-len(payload) % 4 or 1)
    return f"{header}.{payload}.{signature}"


def encoded(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

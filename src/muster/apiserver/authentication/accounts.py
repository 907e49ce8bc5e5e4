"""Tokens of service accounts: what TokenRequest issues, and whom such a token names later.

A token is bound to its account, and to a pod, node or secret if that was asked for: it dies with them. Sources:
kube-apiserver `pkg/serviceaccount`, `pkg/registry/core/serviceaccount/storage/token.go`, and recordings.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.api.codec import Object, dumps
from muster.apiserver.authentication.signatures import Key, Token, TokenError, is_signed_by
from muster.apiserver.authentication.users import ACCOUNT_PREFIX, CREDENTIAL_ID, account_user
from muster.apiserver.errors import Qualified, StatusError, bad_request, conflict, not_found
from muster.apiserver.request import User
from muster.apiserver.store.protocol import Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

EXTRA = "authentication.kubernetes.io/"
KUBELET_S = 3607
"""What kubelets ask for; tokens of this length are stretched to `STRETCHED_S`, for old clients that never read anew."""
STRETCHED_S = 365 * 24 * 3600
_BOUND = {"Pod": "pods", "Node": "nodes", "Secret": "secrets"}
_CLAIMED = ("pod", "node", "secret")
_INVALIDATED = "service account token has been invalidated"


class SigningKey:
    """An RSA key that signs tokens. `SigningKey.load(pem)` or `SigningKey.generate()`."""

    def __init__(self, private: RSAPrivateKey) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> SigningKey:
        """A new key of 2048 bits."""
        from cryptography.hazmat.primitives.asymmetric import rsa

        return cls(rsa.generate_private_key(public_exponent=65537, key_size=2048))

    @classmethod
    def load(cls, pem: bytes) -> SigningKey:
        """The key in a PEM text. Raises ValueError."""
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key(pem, password=None)
        if not isinstance(key, RSAPrivateKey):
            raise ValueError("not an RSA key")
        return cls(key)

    def pem(self) -> bytes:
        """The private key as PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @cached_property
    def jwk(self) -> Object:
        """The public key as a JSON Web Key. Its id is the hash of the key, as upstream's `keyIDFromPublicKey`."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        public = self._private.public_key()
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        numbers = public.public_numbers()
        return {
            "use": "sig",
            "kty": "RSA",
            "kid": _base64(hashlib.sha256(der).digest()),
            "alg": "RS256",
            "n": _base64(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
            "e": _base64(numbers.e.to_bytes(3, "big")),
        }

    def sign(self, claims: Object) -> str:
        """A token with these claims."""
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        header = {"alg": "RS256", "kid": self.jwk["kid"]}
        signed = f"{_base64(dumps(header))}.{_base64(dumps(claims))}"
        signature = self._private.sign(signed.encode(), PKCS1v15(), SHA256())
        return f"{signed}.{_base64(signature)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Accounts(Struct, frozen=True):
    """How service accounts' tokens are signed and checked. `key()` gives the key, made when it is first needed."""

    key: Callable[[], SigningKey]
    issuer: str = "https://kubernetes.default.svc"
    audiences: tuple[str, ...] = ()

    @property
    def own_audiences(self) -> tuple[str, ...]:
        """For whom a token is that names nobody."""
        return self.audiences or (self.issuer,)


def claims_for(
    accounts: Accounts,
    account: Object,
    spec: Object,
    read: Callable[[str, str, str], Object | None],
    now: float,
    jti: str,
) -> tuple[Object, float]:
    """The claims that a valid TokenRequest asks for, and when they expire by what the answer says.

    `read(storage, namespace, name)` gives stored objects. Raises StatusError (400, 404, 409).
    """
    meta = account["metadata"]
    private: Object = {"namespace": meta["namespace"], "serviceaccount": {"name": meta["name"], "uid": meta["uid"]}}
    bound = spec.get("boundObjectRef")
    pod_bound = False
    if bound:
        private |= _bound_claims(bound, account, read)
        pod_bound = bound.get("kind") == "Pod"
    issued, seconds = int(now), int(spec["expirationSeconds"])
    expires = issued + seconds
    stretches = pod_bound and seconds == KUBELET_S and set(spec["audiences"]) <= set(accounts.own_audiences)
    if stretches:
        private["warnafter"] = expires
    claims: Object = {
        "aud": list(spec["audiences"]),
        "exp": issued + STRETCHED_S if stretches else expires,
        "iat": issued,
        "iss": accounts.issuer,
        "jti": jti,
        "kubernetes.io": dict(sorted(private.items())),
        "nbf": issued,
        "sub": f"{ACCOUNT_PREFIX}{meta['namespace']}:{meta['name']}",
    }
    return claims, float(expires)


def _bound_claims(bound: Object, account: Object, read: Callable[[str, str, str], Object | None]) -> Object:
    kind, name, version = bound.get("kind") or "", bound.get("name") or "", bound.get("apiVersion") or ""
    group, _, number = version.rpartition("/")
    storage = _BOUND.get(kind) if not group else None
    if storage is None:
        raise bad_request(f"cannot bind token to object of type {group}/{number}, Kind={kind}")
    if not name:
        raise bad_request("Name parameter required.")
    meta = account["metadata"]
    found = read(storage, "" if kind == "Node" else meta["namespace"], name)
    if found is None:
        raise not_found(Qualified("", storage), name)
    uid = found["metadata"]["uid"]
    claims: Object = {kind.lower(): {"name": name, "uid": uid}}
    if kind == "Pod":
        spec = found.get("spec") or {}
        if (spec.get("serviceAccountName") or "") != meta["name"]:
            account_text = f'cannot bind token for serviceaccount "{meta["name"]}"'
            raise bad_request(f"{account_text} to pod running with different serviceaccount name.")
        node_name = spec.get("nodeName")
        if node_name:
            node = read("nodes", "", node_name)
            claims["node"] = {"name": node_name} | ({"uid": node["metadata"]["uid"]} if node else {})
    asked = bound.get("uid")
    if asked and asked != uid:
        raise _another(kind, name, asked)
    return claims


def _another(kind: str, name: str, asked: str) -> StatusError:
    why = (
        f"the UID in the bound object reference ({asked}) does not match the UID in record. "
        "The object might have been deleted and then recreated"
    )
    return conflict(Qualified("", kind), name, why)


def is_of(accounts: Accounts, token: Token) -> bool:
    """Whether a token says that we issued it."""
    return token.claims.get("iss") == accounts.issuer


def account_of(
    accounts: Accounts, token: Token, audiences: Sequence[str], store: Store, now: float
) -> tuple[User, list[str]]:
    """The user of a token of ours, and for which of `audiences` it is. Raises `TokenError`."""
    key = accounts.key().jwk
    if token.algorithm != "RS256" or not is_signed_by(token, [Key(key["kid"], "RSA", key)]):
        raise TokenError("go-jose/go-jose: error in cryptographic primitive")
    claims = token.claims
    if not _is_complete(claims):
        raise TokenError("service account token claims could not be validated due to invalid structure")
    stated = [each for each in claims.get("aud") or [] if isinstance(each, str)]
    shared = [each for each in audiences if each in stated]
    if not shared:
        got, wanted = (" ".join(f'"{each}"' for each in listed) for listed in (stated, audiences))
        raise TokenError(f"token audiences [{got}] is invalid for the target audiences [{wanted}]")
    if now > claims["exp"]:
        raise TokenError("service account token has expired")
    if now < claims["nbf"]:
        raise TokenError("service account token is not valid yet")
    private = claims["kubernetes.io"]
    namespace, account = private["namespace"], private["serviceaccount"]
    _check_alive(store, private)
    user = account_user(namespace, account["name"], account.get("uid", ""))
    extra = {CREDENTIAL_ID: (f"JTI={claims['jti']}",)}
    for kind in ("pod", "node"):
        if kind in private:
            for field in ("name", "uid"):
                if private[kind].get(field):
                    extra[f"{EXTRA}{kind}-{field}"] = (private[kind][field],)
    return User(user.name, user.groups, user.uid, extra), shared


def _is_complete(claims: Object) -> bool:
    """Whether claims have all that tokens of ours have."""
    private = claims.get("kubernetes.io")
    if not isinstance(private, dict) or not isinstance(claims.get("aud"), list):
        return False
    named = [private.get("serviceaccount"), *(private[kind] for kind in _CLAIMED if kind in private)]
    numbers = (claims.get("exp"), claims.get("nbf"))
    return (
        all(isinstance(number, int) for number in numbers)
        and isinstance(claims.get("jti"), str)
        and isinstance(private.get("namespace"), str)
        and all(isinstance(one, dict) and _has_names(one) for one in named)
    )


def _has_names(reference: Object) -> bool:
    # A pod's node may be one that did not exist when the token was issued.
    return isinstance(reference.get("name"), str) and isinstance(reference.get("uid", ""), str)


def _check_alive(store: Store, private: Object) -> None:
    """The account and what the token is bound to must be there, and the same as when it was issued."""
    namespace, account = private["namespace"], private["serviceaccount"]
    found = store.get(f"/serviceaccounts/{namespace}/{account['name']}")
    if found is None:
        raise TokenError(f'serviceaccounts "{account["name"]}" not found')
    if found["metadata"]["uid"] != account.get("uid"):
        raise TokenError(
            f"service account UID ({found['metadata']['uid']}) does not match claim ({account.get('uid')})"
        )
    for kind, key in (("secret", f"/secrets/{namespace}/"), ("pod", f"/pods/{namespace}/"), ("node", "/nodes/")):
        bound = private.get(kind)
        if bound is None or (kind == "node" and "pod" in private):
            continue
        found = store.get(f"{key}{bound['name']}")
        if found is None:
            raise TokenError(_INVALIDATED)
        if found["metadata"]["uid"] != bound.get("uid"):
            uids = f"{kind} UID ({found['metadata']['uid']}) does not match service account {kind} ref claim"
            raise TokenError(f"{uids} ({bound.get('uid')})")

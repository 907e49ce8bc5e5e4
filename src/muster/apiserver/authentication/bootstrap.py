"""Bootstrap tokens: secrets of kube-system with which new nodes come in.

Source: `plugin/pkg/auth/authenticator/token/bootstrap` and `cluster-bootstrap/token/api`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import re
from collections.abc import Mapping
from datetime import datetime

from muster.api.codec import Object
from muster.apiserver.request import User
from muster.apiserver.store.protocol import Store

SECRET_TYPE = "bootstrap.kubernetes.io/token"
GROUP = "system:bootstrappers"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_MORE_GROUPS = re.compile(rf"{GROUP}:[a-z0-9:-]{{0,255}}[a-z0-9]")
logger = logging.getLogger(__name__)


def bootstrap_user(store: Store, text: str, now: float) -> User | None:
    """The user of a bootstrap token; None for what is none, or none that is good. `now`: in seconds."""
    token = _TOKEN.fullmatch(text)
    if token is None:
        return None
    secret = store.get(f"/secrets/kube-system/bootstrap-token-{token[1]}")
    problem = "there is no such secret" if secret is None else _problem(secret, token[1], token[2], now)
    if secret is None or problem:
        logger.info("bootstrap token is refused", extra={"token": token[1], "error": problem})
        return None
    return User(f"system:bootstrap:{token[1]}", (GROUP, *sorted(_more_groups(_texts(secret)))))


def _problem(secret: Object, name: str, key: str, now: float) -> str:
    """Why a secret does not let a token in; "": it does."""
    texts = _texts(secret)
    if secret["metadata"].get("deletionTimestamp"):
        return "the secret is being deleted"
    if secret.get("type") != SECRET_TYPE:
        return f"the secret is not of type {SECRET_TYPE}"
    if not hmac.compare_digest(texts.get("token-secret", "").encode(), key.encode()):
        return "token-secret is another"
    if texts.get("token-id") != name:
        return "token-id is another"
    if _is_expired(texts.get("expiration", ""), now):
        return "it is expired"
    if texts.get("usage-bootstrap-authentication") != "true":
        return "usage-bootstrap-authentication is not true"
    wrong = [group for group in _more_groups(texts) if not _MORE_GROUPS.fullmatch(group)]
    return f"auth-extra-groups: {wrong[0]} is none of {GROUP}:…" if wrong else ""


def _texts(secret: Object) -> Mapping[str, str]:
    """What the secret holds; what is no text is absent."""
    found: dict[str, str] = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value or "", validate=True).decode()
        except (binascii.Error, ValueError):
            continue
    return found


def _is_expired(text: str, now: float) -> bool:
    """Whether a time of RFC 3339 has come; what is none counts as one that has."""
    if not text:
        return False
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return True
    return time.tzinfo is None or time.timestamp() <= now


def _more_groups(texts: Mapping[str, str]) -> set[str]:
    given = texts.get("auth-extra-groups", "")
    return set(given.split(",")) if given else set()

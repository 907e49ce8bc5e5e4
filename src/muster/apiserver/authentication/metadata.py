"""What the server publishes about its tokens, so that others can check them.

Source: kube-apiserver `pkg/serviceaccount/openidmetadata.go`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.api.codec import Object, dumps

if TYPE_CHECKING:
    from muster.apiserver.authentication.accounts import Accounts

CONFIGURATION_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"


def provider(accounts: Accounts, host: str) -> Object:
    """The discovery document; `host` is where the server was asked."""
    return {
        "issuer": accounts.issuer,
        "jwks_uri": f"https://{host}{KEYS_PATH}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }


def key_set(accounts: Accounts) -> bytes:
    """The public keys, as JSON."""
    return dumps({"keys": [accounts.key().jwk]})

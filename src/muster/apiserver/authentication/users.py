"""The names of users and groups that mean something to the server itself."""

from __future__ import annotations

from muster.apiserver.request import User

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
ACCOUNT_PREFIX = "system:serviceaccount:"
ALL_ACCOUNTS = "system:serviceaccounts"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
"""The key of a user's extra that names the credential."""


def account_user(namespace: str, name: str, uid: str = "") -> User:
    """The user that a service account is."""
    groups = (ALL_ACCOUNTS, f"{ALL_ACCOUNTS}:{namespace}")
    return User(f"{ACCOUNT_PREFIX}{namespace}:{name}", groups, uid)

"""Bootstrap tokens: which secrets let in, and whom. The cases were put to kube-apiserver 1.36."""

from __future__ import annotations

import base64

import pytest

from muster.api.codec import Object
from muster.apiserver.authentication.bootstrap import bootstrap_user
from muster.apiserver.request import User
from muster.apiserver.store.memory import MemoryStore
from muster.clock import SIMULATION_EPOCH_S

TOKEN = "abcdef.0123456789abcdef"


def user(text: str = TOKEN, *, type_: str = "bootstrap.kubernetes.io/token", **changes: str | None) -> User | None:
    """The user of a token where a good secret has these values besides; None takes one away."""
    data = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
    data |= {key.replace("_", "-"): value for key, value in changes.items() if value is not None}
    gone = {key.replace("_", "-") for key, value in changes.items() if value is None}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items() if key not in gone}
    meta = {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": type_, "data": encoded}
    store = MemoryStore()
    store.put("/secrets/kube-system/bootstrap-token-abcdef", secret)
    return bootstrap_user(store, text, SIMULATION_EPOCH_S)


def test_a_token_makes_a_bootstrapper() -> None:
    assert user() == User("system:bootstrap:abcdef", ("system:bootstrappers",))


@pytest.mark.parametrize("expiration", ["", "2099-01-01T00:00:00Z", "2099-01-01T00:00:00.5+01:00"])
def test_a_token_is_good_until_it_expires(expiration: str) -> None:
    assert user(expiration=expiration) is not None


def test_more_groups_come_in_order() -> None:
    found = user(auth_extra_groups="system:bootstrappers:b,system:bootstrappers:a")
    assert found is not None
    assert found.groups == ("system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:b")


@pytest.mark.parametrize(
    "changes",
    [
        {"expiration": "2020-01-01T00:00:00Z"},
        {"expiration": "nonsense"},
        {"expiration": "2099-01-01"},
        {"usage_bootstrap_authentication": None},
        {"usage_bootstrap_authentication": "TRUE"},
        {"type_": "Opaque"},
        {"token_id": "zzzzzz"},
        {"token_secret": "x"},
        {"auth_extra_groups": "other"},
        {"auth_extra_groups": "system:bootstrappers"},
        {"auth_extra_groups": "system:bootstrappers:A"},
        {"auth_extra_groups": "system:bootstrappers:a, system:bootstrappers:b"},
        {"auth_extra_groups": "system:bootstrappers:a,"},
        {"text": "abcdef.0123456789abcdeg"},
        {"text": "zzzzzz.0123456789abcdef"},
        {"text": "ABCDEF.0123456789abcdef"},
        {"text": "abcdef.0123456789abcdef0"},
    ],
    ids=str,
)
def test_what_is_not_right_lets_nobody_in(changes: dict[str, str | None]) -> None:
    assert user(**changes) is None  # type: ignore[arg-type]  # of a table

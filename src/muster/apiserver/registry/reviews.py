"""Questions that are objects: who am I, may I, is this token good. Nothing is stored; the answer is the object.

Everybody may do everything: authorisation is not built yet. Sources: upstream `pkg/registry/{authentication,
authorization}`, recordings.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, invalid
from muster.apiserver.fields import FieldError, invalid_value
from muster.apiserver.registry.strategy import Strategy
from muster.clock import rfc3339

SHORTEST_TOKEN_S = 600
LONGEST_TOKEN_S = 2**32
DEFAULT_TOKEN_S = 3600


class ReviewStrategy(Strategy):
    """A kind that is answered at once and not stored."""

    is_stored = False


class SelfSubjectReviewStrategy(ReviewStrategy):
    """Who am I?"""

    def answer(self, obj: Object, ctx: Context) -> Object:
        user: Object = {"username": ctx.user.name, "groups": list(ctx.user.groups)}
        if ctx.user.uid:
            user["uid"] = ctx.user.uid
        return {**obj, "metadata": {"creationTimestamp": ctx.timestamp}, "status": {"userInfo": user}}


class AccessReviewStrategy(ReviewStrategy):
    """May I, or may somebody?"""

    def answer(self, obj: Object, ctx: Context) -> Object:
        return {**obj, "status": {"allowed": True}}

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (resource is None) == (other is None):
            both = "cannot be specified in combination with resourceAttributes"
            neither = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            field = "spec.resourceAttributes" if other is None else "spec.nonResourceAttributes"
            return [invalid_value(field, other, both if resource is not None else neither)]
        return []


class SubjectAccessReviewStrategy(AccessReviewStrategy):
    """May somebody? It must be said who."""

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = super().validate(obj, ctx)
        if not spec.get("user") and not spec.get("groups"):
            errors.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
        return errors


class RulesReviewStrategy(ReviewStrategy):
    """What may I?"""

    def answer(self, obj: Object, ctx: Context) -> Object:
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        status: Object = {
            "resourceRules": [everything],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
        return {**obj, "metadata": {}, "spec": {}, "status": status}


class TokenReviewStrategy(ReviewStrategy):
    """Is this token good? None is, as long as there is no authentication."""

    def answer(self, obj: Object, ctx: Context) -> Object:
        return {**obj, "status": {"user": {}, "error": "invalid bearer token"}}


def issued(account: Object, request: Object, ctx: Context) -> Object:
    """The answer to a TokenRequest for a service account. Raises StatusError (422)."""
    spec = dict(request.get("spec") or {})
    seconds = spec.get("expirationSeconds")
    if seconds is None:
        seconds = spec["expirationSeconds"] = DEFAULT_TOKEN_S
    problem = ""
    if seconds < SHORTEST_TOKEN_S:
        problem = "may not specify a duration less than 10 minutes"
    elif seconds > LONGEST_TOKEN_S:
        problem = "may not specify a duration larger than 2^32 seconds"
    if problem:
        of = Qualified("authentication.k8s.io", "TokenRequest")
        raise invalid(of, "", [invalid_value("spec.expirationSeconds", seconds, problem)])
    meta = account["metadata"]
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "creationTimestamp": ctx.timestamp},
        "spec": spec,
        "status": {"token": f"{ctx.rng.getrandbits(256):064x}", "expirationTimestamp": rfc3339(ctx.now + seconds)},
    }

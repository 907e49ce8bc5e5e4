"""Questions that are objects: who am I, may I, is this token good. Nothing is stored; the answer is the object.

Sources: upstream `pkg/registry/{authentication,authorization}`, recordings.
"""

from __future__ import annotations

from typing import ClassVar

from muster.api.codec import JSON, Object
from muster.apiserver.authentication.accounts import claims_for
from muster.apiserver.authorization.attributes import Attributes
from muster.apiserver.authorization.authorizer import authorizer, rules_for
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, bad_request, invalid
from muster.apiserver.fields import FieldError, invalid_value
from muster.apiserver.metadata import random_uid
from muster.apiserver.registry.strategy import Strategy
from muster.apiserver.request import User
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
        return {**obj, "metadata": {"creationTimestamp": ctx.timestamp}, "status": {"userInfo": ctx.user.info()}}


class AccessReviewStrategy(ReviewStrategy):
    """May I, or may somebody?"""

    kept_metadata: ClassVar[frozenset[str]] = frozenset({"managedFields"})
    """What metadata may say all the same."""

    def answer(self, obj: Object, ctx: Context) -> Object:
        spec: Object = obj.get("spec") or {}
        decision = authorizer(ctx.options.authorization_modes, ctx.store)(self.user(spec, ctx), attributes_in(spec))
        status: Object = {"allowed": decision.is_allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return {**obj, "status": status}

    def user(self, spec: Object, ctx: Context) -> User:
        """Whose rights are asked for."""
        return ctx.user

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (resource is None) == (other is None):
            both = "cannot be specified in combination with resourceAttributes"
            neither = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            field = "spec.resourceAttributes" if other is None else "spec.nonResourceAttributes"
            return [invalid_value(field, _in_go(other), both if resource is not None else neither)]
        errors = _metadata_errors(obj["metadata"], self.kept_metadata)
        errors += [
            invalid_value(
                f"spec.resourceAttributes.{name}.rawSelector",
                selector["rawSelector"],
                "may not specified at the same time as requirements",
            )
            for name in ("fieldSelector", "labelSelector")
            if (selector := (resource or {}).get(name) or {}).get("rawSelector") and selector.get("requirements")
        ]
        return errors


def _metadata_errors(metadata: Object, kept: frozenset[str]) -> list[FieldError]:
    """A question has no metadata."""
    given = {key: value for key, value in metadata.items() if value not in (None, "", {}, [])}
    if given.keys() <= kept:
        return []
    if "managedFields" in given:
        given["managedFields"] = [
            {**entry, "fieldsV1": _in_order(entry.get("fieldsV1"))} for entry in given["managedFields"]
        ]
    return [invalid_value("metadata", given, "must be empty")]


def _in_order(fields: JSON) -> JSON:
    """Fields sorted by their names, as Go prints a map."""
    if not isinstance(fields, dict):
        return fields
    return {name: _in_order(inner) for name, inner in sorted(fields.items())}


def _in_go(attributes: Object | None) -> Object | None:
    """Attributes as upstream prints them."""
    if attributes is None:
        return None
    return {"Path": attributes.get("path", ""), "Verb": attributes.get("verb", "")}


def attributes_in(spec: Object) -> Attributes:
    """What an access review asks about."""
    other = spec.get("nonResourceAttributes")
    if other is not None:
        return Attributes(other.get("verb", ""), is_resource=False, path=other.get("path", ""))
    resource = spec.get("resourceAttributes") or {}
    fields = ("group", "resource", "subresource", "namespace", "name")
    group, plural, subresource, namespace, name = (resource.get(field) or "" for field in fields)
    required_fields = (resource.get("fieldSelector") or {}).get("requirements") or ()
    equal = tuple(
        (one.get("key", ""), one["values"][0])
        for one in required_fields
        if one.get("operator") == "In" and len(one.get("values") or ()) == 1
    )
    return Attributes(resource.get("verb", ""), True, group, plural, subresource, namespace, name, fields=equal)


class SubjectAccessReviewStrategy(AccessReviewStrategy):
    """May somebody? It must be said who."""

    def user(self, spec: Object, ctx: Context) -> User:
        return User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "")

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = super().validate(obj, ctx)
        if not spec.get("user") and not spec.get("groups"):
            errors.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
        return errors


class LocalAccessReviewStrategy(SubjectAccessReviewStrategy):
    """May somebody in this namespace?"""

    kept_metadata = frozenset({"managedFields", "namespace"})

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        errors = super().validate(obj, ctx)
        spec, namespace = obj.get("spec") or {}, obj["metadata"].get("namespace", "")
        resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if resource is not None and (resource.get("namespace") or "") != namespace:
            where = "spec.resourceAttributes.namespace"
            errors.append(invalid_value(where, resource.get("namespace") or "", "must match metadata.namespace"))
        if other is not None:
            errors.append(
                invalid_value("spec.nonResourceAttributes", _in_go(other), "disallowed on this kind of request")
            )
        return errors


class RulesReviewStrategy(ReviewStrategy):
    """What may I?"""

    def answer(self, obj: Object, ctx: Context) -> Object:
        namespace = (obj.get("spec") or {}).get("namespace") or ""
        if not namespace:
            raise bad_request("no namespace on request")
        status = rules_for(ctx.options.authorization_modes, ctx.store, ctx.user, namespace)
        return {**obj, "metadata": {}, "spec": {}, "status": status}


class TokenReviewStrategy(ReviewStrategy):
    """Is this token good?"""

    def answer(self, obj: Object, ctx: Context) -> Object:
        if not (obj.get("spec") or {}).get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        verdict = ctx.verdict
        if verdict is None or verdict.user is None:
            error = verdict.error if verdict is not None else "invalid bearer token"
            return {**obj, "status": {"user": {}, "error": error}}
        status = {"authenticated": True, "user": verdict.user.info(), "audiences": list(verdict.audiences)}
        return {**obj, "status": status}


def issued(account: Object, request: Object, ctx: Context, namespace: str) -> Object:
    """The answer to a TokenRequest for a service account. Raises StatusError (400, 404, 409, 422)."""
    meta, given = account["metadata"], request.get("metadata") or {}
    if given.get("namespace") and given["namespace"] != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if given.get("name") and given["name"] != meta["name"]:
        raise bad_request("name in URL does not match name in TokenRequest object")
    spec = dict(request.get("spec") or {})
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = DEFAULT_TOKEN_S
    _check_seconds(spec["expirationSeconds"])
    answer: Object = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "creationTimestamp": ctx.timestamp},
        "spec": spec,
    }
    expires = ctx.now + spec["expirationSeconds"]
    if ctx.accounts is None:
        token = f"{ctx.rng.getrandbits(256):064x}"
    else:
        spec["audiences"] = spec.get("audiences") or list(ctx.accounts.own_audiences)
        spec.setdefault("boundObjectRef", None)
        answer["metadata"]["uid"] = meta["uid"]
        claims, expires = claims_for(ctx.accounts, account, spec, ctx.read, ctx.now, random_uid(ctx.rng))
        token = ctx.accounts.key().sign(claims)
    answer["status"] = {"token": token, "expirationTimestamp": rfc3339(expires)}
    return answer


def _check_seconds(seconds: int) -> None:
    problem = ""
    if seconds < SHORTEST_TOKEN_S:
        problem = "may not specify a duration less than 10 minutes"
    elif seconds > LONGEST_TOKEN_S:
        problem = "may not specify a duration larger than 2^32 seconds"
    if problem:
        of = Qualified("authentication.k8s.io", "TokenRequest")
        raise invalid(of, "", [invalid_value("spec.expirationSeconds", seconds, problem)])

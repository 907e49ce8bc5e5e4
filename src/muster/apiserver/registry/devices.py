"""Claims of devices: stored with their defaults. Source: upstream `pkg/apis/resource/v1/defaults.go`, recordings."""

from __future__ import annotations

from collections.abc import Iterator

from muster.api.codec import Object
from muster.apiserver.context import Context
from muster.apiserver.fields import FieldError, forbidden_field, invalid_value, required
from muster.apiserver.registry.strategy import Strategy


class CountedStrategy(Strategy):
    """A stored kind with a generation."""

    counts_generation = True


class ClaimStrategy(Strategy):
    """ResourceClaim: its spec never changes."""

    has_status = True

    def default(self, obj: Object, ctx: Context) -> None:
        default_claim_spec(obj.get("spec") or {})

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        return validate_claim_spec(obj.get("spec") or {}, "spec")

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        if new.get("spec") != old.get("spec"):
            return [invalid_value("spec", new.get("spec"), "field is immutable")]
        return []

    def validate_status(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        status = new.get("status") or {}
        if status.get("reservedFor") and not status.get("allocation"):
            return [forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set")]
        return []


class ClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplate."""

    def default(self, obj: Object, ctx: Context) -> None:
        default_claim_spec((obj.get("spec") or {}).get("spec") or {})

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        return validate_claim_spec((obj.get("spec") or {}).get("spec") or {}, "spec.spec")

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        if new.get("spec") != old.get("spec"):
            return [invalid_value("spec", new.get("spec"), "field is immutable")]
        return []


def _requests(spec: Object) -> Iterator[Object]:
    """Every request or alternative of a claim that names a class."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("exactly") is not None:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def default_claim_spec(spec: Object) -> None:
    """Fill in how many devices each request asks for."""
    for request in _requests(spec):
        if not request.get("allocationMode"):
            request["allocationMode"] = "ExactCount"
        if request["allocationMode"] == "ExactCount" and not request.get("count"):
            request["count"] = 1


def validate_claim_spec(spec: Object, field: str) -> list[FieldError]:
    """Each request is of one kind, and its count goes with its mode."""
    errors: list[FieldError] = []
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        at = f"{field}.devices.requests[{index}]"
        exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
        if exactly is None and not alternatives:
            errors.append(required(at, "exactly one of `exactly` or `firstAvailable` is required"))
        elif exactly is not None and alternatives:
            why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
            errors.append(invalid_value(at, "{`exactly`, `firstAvailable`}", why))
        if exactly is not None:
            errors += _validate_request(exactly, f"{at}.exactly")
        for place, alternative in enumerate(alternatives):
            errors += _validate_request(alternative, f"{at}.firstAvailable[{place}]")
    return errors


def _validate_request(request: Object, at: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not request.get("deviceClassName"):
        errors.append(required(f"{at}.deviceClassName"))
    count = request.get("count")
    if request.get("allocationMode") == "All" and count:
        why = "must not be specified when allocationMode is 'All'"
        errors.append(invalid_value(f"{at}.count", count, why))
    if request.get("allocationMode") == "ExactCount" and (count or 0) <= 0:
        errors.append(invalid_value(f"{at}.count", count, "must be greater than zero"))
    return errors

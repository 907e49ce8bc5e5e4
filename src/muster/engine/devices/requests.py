"""What ResourceClaims ask for, parsed: requests and their alternatives, constraints, configuration."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from muster.api.codec import JSON, Object, Objects, canonical, loads
from muster.api.quantity import Quantity, parse_quantity
from muster.engine.devices.tolerations import DeviceToleration, device_toleration

EXACT_COUNT = "ExactCount"
ALL = "All"


class DeviceRequest(Struct, frozen=True):
    """One request, or one alternative of a prioritised list (`parent` is then the list's name).

    `selectors`: CEL expressions, None for a selector of another kind. `admin`: None if nothing is said.
    """

    name: str
    parent: str
    device_class: str
    selectors: tuple[str | None, ...]
    mode: str
    count: int
    admin: bool | None
    tolerations: tuple[DeviceToleration, ...]
    written_tolerations: bytes
    capacity: tuple[tuple[str, Quantity], ...] | None

    @property
    def full_name(self) -> str:
        """How results and constraints name it."""
        return f"{self.parent}/{self.name}" if self.parent else self.name


class RequestEntry(Struct, frozen=True):
    """An entry of a claim: one request, or several of which the first that can be met is taken."""

    name: str
    choices: tuple[DeviceRequest, ...]
    is_list: bool


class ConstraintSpec(Struct, frozen=True):
    """`kind`: "match" or "distinct", "" for one that is not known; `requests` empty: all."""

    kind: str
    attribute: str
    requests: frozenset[str]


class ClaimSpec(Struct, frozen=True):
    """`spec.devices` of a claim. `written` is its JSON, by which equal specs are known."""

    entries: tuple[RequestEntry, ...]
    constraints: tuple[ConstraintSpec, ...]
    written: bytes

    @property
    def config(self) -> Objects:
        """The configuration entries as written."""
        found: Objects = loads(self.written).get("config") or []
        return found

    @property
    def classes(self) -> frozenset[str]:
        """The names of all device classes that it mentions."""
        return frozenset(choice.device_class for entry in self.entries for choice in entry.choices)


def claim_spec(claim: Object) -> ClaimSpec:
    """The spec of a ResourceClaim (or of the spec of a template). Raises QuantityError."""
    return parse_spec(canonical((claim.get("spec") or {}).get("devices") or {}))


@lru_cache(maxsize=4096)
def parse_spec(written: bytes) -> ClaimSpec:
    """The spec of the canonical JSON of `spec.devices`. Raises QuantityError."""
    devices: Object = loads(written)
    return ClaimSpec(
        tuple(_entry(each) for each in devices.get("requests") or ()),
        tuple(_constraint(each) for each in devices.get("constraints") or ()),
        written,
    )


def _entry(entry: Object) -> RequestEntry:
    name = entry.get("name") or ""
    alternatives = entry.get("firstAvailable") or ()
    if alternatives:
        return RequestEntry(name, tuple(_request(each, each.get("name") or "", name) for each in alternatives), True)
    exactly = entry.get("exactly") or (entry if entry.get("deviceClassName") else None)  # v1beta1 has no `exactly`
    return RequestEntry(name, () if exactly is None else (_request(exactly, name, ""),), False)


def _request(fields: Object, name: str, parent: str) -> DeviceRequest:
    mode = fields.get("allocationMode") or EXACT_COUNT
    count = int(fields.get("count") or 0) or (1 if mode == EXACT_COUNT else 0)
    tolerations: JSON = fields.get("tolerations") or []
    wanted = fields.get("capacity")
    capacity = None
    if wanted is not None:
        capacity = tuple(sorted((key, parse_quantity(each)) for key, each in (wanted.get("requests") or {}).items()))
    return DeviceRequest(
        name,
        parent,
        fields.get("deviceClassName") or "",
        tuple((each.get("cel") or {}).get("expression") for each in fields.get("selectors") or ()),
        mode,
        count,
        None if parent else fields.get("adminAccess"),
        tuple(device_toleration(each) for each in tolerations),
        canonical(tolerations),
        capacity,
    )


def _constraint(entry: Object) -> ConstraintSpec:
    requests = frozenset(entry.get("requests") or ())
    for kind, field in (("match", "matchAttribute"), ("distinct", "distinctAttribute")):
        if entry.get(field) is not None:
            return ConstraintSpec(kind, entry[field], requests)
    return ConstraintSpec("", "", requests)

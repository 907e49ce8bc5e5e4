"""Claims of devices and device classes: defaults, what may change, validation.

Sources: upstream `pkg/apis/resource/v1/defaults.go`, `pkg/apis/resource/validation`, recordings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from muster.api.cel_types import ANY, BOOL
from muster.api.codec import JSON, Object, Objects
from muster.api.device_selectors import compile_selector
from muster.api.expressions import NoProgram, NotAnExpression, NotSupported
from muster.api.labels import label_value_errors
from muster.apiserver.context import Context
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    label_problems,
    not_supported,
    qualified_name_problems,
    required,
    subdomain_problems,
    too_long,
    too_many,
    validate_annotations,
    validate_labels,
)
from muster.apiserver.registry.strategy import Strategy

Errors: TypeAlias = list[FieldError]

MOST_REQUESTS = 32
MOST_ALTERNATIVES = 8
MOST_SELECTORS = 32
MOST_CONSUMERS = 256
LONGEST_EXPRESSION = 10 * 1024
LONGEST_DRIVER = 63
_MODES = ("ExactCount", "All")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is "
    "'[A-Za-z_][A-Za-z0-9_]*')"
)
DEVICE_EFFECTS = ("NoExecute", "NoSchedule", "None")
_EXTENDED = re.compile(r"[^/]+/[^/]+")


class DeviceClassStrategy(Strategy):
    """DeviceClass."""

    counts_generation = True

    def validate(self, obj: Object, ctx: Context) -> Errors:
        spec = obj.get("spec") or {}
        errors = validate_selectors(spec.get("selectors") or [], "spec.selectors")
        name = spec.get("extendedResourceName")
        if name is not None and not _is_extended(name):
            errors.append(invalid_value("spec.extendedResourceName", name, "must be a valid extended resource name"))
        return errors + _validate_configs(spec.get("config") or [], "spec.config", None)


def _is_extended(name: str) -> bool:
    """Whether a resource may be served by devices. Source: upstream `IsExtendedResourceName`."""
    if not _EXTENDED.fullmatch(name) or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not qualified_name_problems(f"requests.{name}")


class ClaimStrategy(Strategy):
    """ResourceClaim: its spec never changes."""

    has_status = True

    def default(self, obj: Object, ctx: Context) -> None:
        default_claim_spec(obj.setdefault("spec", {}))

    def validate(self, obj: Object, ctx: Context) -> Errors:
        spec = obj.get("spec") or {}
        return validate_admin_access(obj, spec, ctx) + validate_claim_spec(spec, "spec")

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {}

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        return _validate_fixed(new.get("spec"), old.get("spec"), ctx)

    def validate_status(self, new: Object, old: Object, ctx: Context) -> Errors:
        status = new.get("status") or {}
        errors = _validate_consumers(status.get("reservedFor") or [], "status.reservedFor")
        if status.get("reservedFor") and not status.get("allocation"):
            errors.append(forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set"))
        before, after = (old.get("status") or {}).get("allocation"), status.get("allocation")
        if before and after and before != after:
            errors.append(invalid_value("status.allocation", after, "field is immutable"))
        return errors


class ClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplate."""

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        default_claim_spec(spec.setdefault("spec", {}))
        # Texts that are empty are none.
        metadata = spec.get("metadata") or {}
        spec["metadata"] = {name: value for name, value in metadata.items() if value != ""}

    def validate(self, obj: Object, ctx: Context) -> Errors:
        errors = validate_admin_access(obj, obj["spec"]["spec"], ctx)
        errors += _validate_template_metadata(obj["spec"].get("metadata") or {}, "spec.metadata")
        return errors + validate_claim_spec(obj["spec"]["spec"], "spec.spec")

    def validate_update(self, new: Object, old: Object, ctx: Context) -> Errors:
        if new["spec"] == old.get("spec"):
            return []
        return self.validate(new, ctx) + _validate_fixed(new.get("spec"), old.get("spec"), ctx)


def _validate_fixed(new: JSON, old: JSON, ctx: Context) -> Errors:
    if new == old:
        return []
    # Later releases do not show the value any more.
    shown = new if ctx.options.emulate in ("1.35", "1.36") else None
    return [invalid_value("spec", shown, "field is immutable")]


_SPELLED = {"uid": "uID"}
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"


def _validate_template_metadata(metadata: Object, at: str) -> Errors:
    """Only labels and annotations can be given to the claims of a template."""
    errors = validate_labels(metadata.get("labels") or {}, f"{at}.labels")
    errors += validate_annotations(metadata.get("annotations") or {}, f"{at}.annotations")
    names = sorted(metadata.keys() - {"labels", "annotations"})
    return errors + [forbidden_field(f"{at}.{_SPELLED.get(name, name)}", "cannot be set") for name in names]


def validate_admin_access(obj: Object, spec: Object, ctx: Context) -> Errors:
    """Devices in use may be asked for in namespaces that say so.

    Upstream's paths are those of claims, for templates too. Source: `pkg/registry/resource` (AuthorizedForAdmin).
    """
    asked = [
        index
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or ())
        if (request.get("exactly") or {}).get("adminAccess")
    ]
    if not asked:
        return []
    namespace = ctx.read("namespaces", "", obj["metadata"].get("namespace") or "") or {"metadata": {}}
    if (namespace["metadata"].get("labels") or {}).get(_ADMIN_LABEL) == "true":
        return []
    why = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"
    return [forbidden_field(f"spec.devices.requests[{index}].adminAccess", why) for index in asked]


def _requests(spec: Object) -> Iterator[Object]:
    """Every request or alternative of a claim that names a class."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("exactly") is not None:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def default_claim_spec(spec: Object) -> None:
    """Fill in how many devices each request asks for."""
    # Upstream writes the list even if there is none.
    spec.setdefault("devices", {}).setdefault("requests", None)
    for request in _requests(spec):
        for toleration in request.get("tolerations") or ():
            toleration["operator"] = toleration.get("operator") or "Equal"
        if not request.get("allocationMode"):
            request["allocationMode"] = "ExactCount"
        if request["allocationMode"] == "ExactCount" and not request.get("count"):
            request["count"] = 1


def validate_claim_spec(spec: Object, field: str) -> Errors:
    """The requests of a claim, its constraints and its configuration."""
    devices = spec.get("devices") or {}
    at, requests = f"{field}.devices", devices.get("requests") or []
    names = list(_request_names(requests))
    errors = _validate_named(requests, f"{at}.requests", MOST_REQUESTS)
    for index, request in enumerate(requests):
        errors += _validate_request(request, f"{at}.requests[{index}]")
    for index, constraint in enumerate(devices.get("constraints") or ()):
        errors += _validate_constraint(constraint, f"{at}.constraints[{index}]", names)
    return errors + _validate_configs(devices.get("config") or [], f"{at}.config", names)


def _request_names(requests: Objects) -> Iterator[str]:
    """What a constraint or a configuration may refer to: requests, and their alternatives as `request/alternative`."""
    for request in requests:
        name = request.get("name") or ""
        yield name
        for alternative in request.get("firstAvailable") or ():
            yield f"{name}/{alternative.get('name') or ''}"


def _validate_named(items: Objects, at: str, most: int) -> Errors:
    """Items have names that are labels and differ."""
    errors = [too_many(at, len(items), most)] if len(items) > most else []
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = item.get("name") or ""
        errors += [
            invalid_value(f"{at}[{index}].name", name, problem) for problem in label_problems(name, "characters")
        ]
        if name in seen:
            errors.append(duplicate(f"{at}[{index}]", name))
        seen.add(name)
    return errors


def _validate_request(request: Object, at: str) -> Errors:
    errors: Errors = []
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        errors.append(required(at, "exactly one of `exactly` or `firstAvailable` is required"))
    elif exactly is not None and alternatives:
        why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        return [invalid_value(at, None, why)]
    if exactly is not None:
        errors += _validate_devices(exactly, f"{at}.exactly")
    errors += _validate_named(alternatives, f"{at}.firstAvailable", MOST_ALTERNATIVES)
    for place, alternative in enumerate(alternatives):
        errors += _validate_devices(alternative, f"{at}.firstAvailable[{place}]")
    return errors


def _validate_devices(request: Object, at: str) -> Errors:
    """Class, selectors and number of a request or an alternative."""
    errors: Errors = []
    class_name = request.get("deviceClassName") or ""
    if not class_name:
        errors.append(required(f"{at}.deviceClassName"))
    else:
        problems = subdomain_problems(class_name)
        errors += [invalid_value(f"{at}.deviceClassName", class_name, problem) for problem in problems]
    errors += validate_selectors(request.get("selectors") or [], f"{at}.selectors")
    errors += _validate_tolerations(request.get("tolerations") or [], f"{at}.tolerations")
    count, mode = request.get("count"), request.get("allocationMode")
    if mode not in _MODES:
        errors.append(not_supported(f"{at}.allocationMode", mode, sorted(_MODES)))
    elif mode == "All" and count:
        errors.append(invalid_value(f"{at}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount" and (count or 0) <= 0:
        errors.append(invalid_value(f"{at}.count", count, "must be greater than zero"))
    return errors


def _validate_tolerations(tolerations: Objects, at: str) -> Errors:
    """Which taints of devices do not matter."""
    errors: Errors = []
    for index, toleration in enumerate(tolerations):
        here, key, value = f"{at}[{index}]", toleration.get("key") or "", toleration.get("value") or ""
        operator, effect = toleration.get("operator") or "", toleration.get("effect") or ""
        if key:
            errors += [invalid_value(f"{here}.key", key, problem) for problem in qualified_name_problems(key)]
        if operator == "Exists":
            if value:
                errors.append(invalid_value(f"{here}.value", value, "must be empty for operator `Exists`"))
        elif operator == "Equal":
            errors += [invalid_value(f"{here}.value", value, problem) for problem in label_value_errors(value)]
        else:
            errors.append(not_supported(f"{here}.operator", operator, ("Equal", "Exists")))
        if effect and effect not in DEVICE_EFFECTS:
            errors.append(not_supported(f"{here}.effect", effect, DEVICE_EFFECTS))
    return errors


def _validate_constraint(constraint: Object, at: str, names: Sequence[str]) -> Errors:
    errors = _validate_references(constraint.get("requests") or [], f"{at}.requests", names)
    given = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name) is not None]
    if not given:
        # The text is upstream's, though nothing is set.
        why = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        return [*errors, required(at, why)]
    return errors + validate_full_name(constraint[given[0]], f"{at}.{given[0]}")


def _validate_references(names: Sequence[str], at: str, known: Sequence[str]) -> Errors:
    errors: Errors = []
    for index, name in enumerate(names):
        for part in name.split("/", 1):
            problems = label_problems(part, "characters")
            errors += [invalid_value(f"{at}[{index}]", part, problem) for problem in problems]
        if name not in known:
            why = (
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
            )
            errors.append(invalid_value(f"{at}[{index}]", name, why))
        if name in names[:index]:
            errors.append(duplicate(f"{at}[{index}]", name))
    return errors


def validate_full_name(name: str, at: str) -> Errors:
    """A name with its domain, `domain/name`."""
    domain, slash, rest = name.partition("/")
    if not slash:
        why = "a fully qualified name must be a domain and a name separated by a slash"
        return [*validate_identifier(name, at), invalid_value(at, name, why)]
    errors = validate_driver(domain, at) if domain else [required(at, "the domain must not be empty")]
    return errors + (validate_identifier(rest, at) if rest else [required(at, "the name must not be empty")])


def validate_identifier(name: str, at: str) -> Errors:
    """A name as programming languages have them, of at most 32 characters."""
    errors = [too_long(at, 32)] if len(name) > 32 else []
    return errors if _IDENTIFIER.fullmatch(name) else [*errors, invalid_value(at, name, _IDENTIFIER_TEXT)]


def validate_driver(name: str, at: str) -> Errors:
    """The name of a driver."""
    if not name:
        return [required(at)]
    errors = [too_long(at, LONGEST_DRIVER)] if len(name) > LONGEST_DRIVER else []
    return errors + [invalid_value(at, name, problem) for problem in subdomain_problems(name)]


def _validate_configs(configs: Objects, at: str, names: Sequence[str] | None) -> Errors:
    """Opaque parameters; `names`: the requests that they may be for (None: a class has none)."""
    errors: Errors = []
    for index, config in enumerate(configs):
        if names is not None:
            errors += _validate_references(config.get("requests") or [], f"{at}[{index}].requests", names)
        opaque = config.get("opaque")
        if opaque is None:
            errors.append(required(f"{at}[{index}].opaque"))
            continue
        errors += validate_driver(opaque.get("driver") or "", f"{at}[{index}].opaque.driver")
        if opaque.get("parameters") is None:
            errors.append(required(f"{at}[{index}].opaque.parameters"))
        elif not isinstance(opaque["parameters"], dict):
            why = "parameters must be a valid JSON object"
            errors.append(invalid_value(f"{at}[{index}].opaque.parameters", "<value omitted>", why))
    return errors


def validate_selectors(selectors: Objects, at: str) -> Errors:
    """Selectors are CEL expressions over `device` that say yes or no."""
    errors = [too_many(at, len(selectors), MOST_SELECTORS)] if len(selectors) > MOST_SELECTORS else []
    for index, selector in enumerate(selectors):
        cel = selector.get("cel")
        if cel is None:
            errors.append(required(f"{at}[{index}].cel"))
        else:
            errors += _validate_expression(cel.get("expression") or "", f"{at}[{index}].cel.expression")
    return errors


def _validate_expression(text: str, at: str) -> Errors:
    if not text:
        return [required(at)]
    if len(text.encode()) > LONGEST_EXPRESSION:
        return [too_long(at, LONGEST_EXPRESSION)]
    try:
        found = compile_selector(text)
        if found.type not in (BOOL, ANY):
            shown = str(found.type).replace("any", "google.protobuf.Any")
            return [invalid_value(at, text, f"must evaluate to bool or the unknown type, not {shown}")]
        found.check_constants()
    except NotSupported:
        pass  # a real server may know it
    except NotAnExpression as error:
        return [invalid_value(at, text, f"compilation failed: {error}")]
    except NoProgram as error:
        return [FieldError("InternalError", at, f"Internal error: program instantiation failed: {error}")]
    return []


def _validate_consumers(consumers: Objects, at: str) -> Errors:
    errors = [too_many(at, len(consumers), MOST_CONSUMERS)] if len(consumers) > MOST_CONSUMERS else []
    seen: set[JSON] = set()
    for index, consumer in enumerate(consumers):
        errors += [required(f"{at}[{index}].{name}") for name in ("resource", "name", "uid") if not consumer.get(name)]
        uid = consumer.get("uid")
        if uid in seen:
            errors.append(duplicate(f"{at}[{index}].uid", uid))
        seen.add(uid)
    return errors

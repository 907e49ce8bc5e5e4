"""The strategies of CustomResourceDefinitions and of the objects that they define.

Source: apiextensions-apiserver `pkg/registry/{customresource,customresourcedefinition}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.api.codec import JSON, Object, copy_object
from muster.api.jsonpath import Path
from muster.apiserver.context import Context
from muster.apiserver.custom.definition import CLEANUP, is_terminating, storage_version, terminating
from muster.apiserver.custom.definition_rules import validate_definition
from muster.apiserver.custom.rules import NOT_CHECKED, RuleTree, is_blocking, validate_rules
from muster.apiserver.custom.structure import EMBEDDED, set_defaults
from muster.apiserver.custom.values import validate_lists, validate_value
from muster.apiserver.errors import method_not_allowed
from muster.apiserver.fields import FieldError, invalid_value, required
from muster.apiserver.registry.strategy import Strategy
from muster.apiserver.resources import ScalePaths

_MAX_INT32 = 2**31 - 1


class DefinitionStrategy(Strategy):
    """CustomResourceDefinitions. What follows from them (names, serving, the end of their objects) is `keeper`'s."""

    has_status = True
    status_keeps_metadata = True
    counts_generation = True
    needs_version_on_update = True
    returns_deleted = True
    deletion_finalizers = (CLEANUP,)

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        spec.setdefault("conversion", {"strategy": "None"})
        if spec.get("preserveUnknownFields") is False:
            del spec["preserveUnknownFields"]

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        stored = storage_version(obj)
        status: Object = {"acceptedNames": {"plural": "", "kind": ""}}
        obj["status"] = {**status, "storedVersions": [stored]} if stored else status
        if (obj["spec"].get("conversion") or {}).get("strategy") == "Webhook":
            ctx.warn("webhooks are not called here: versions are converted as with the strategy None")

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        status = dict(new.get("status") or {})
        stored, known = storage_version(new), status.get("storedVersions") or []
        if stored and stored not in known:
            new["status"] = {**status, "storedVersions": [*known, stored]}

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        return validate_definition(obj)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        return validate_definition(new, old)

    def mark_deleted(self, obj: Object, ctx: Context) -> None:
        meta = obj["metadata"]
        meta.pop("deletionGracePeriodSeconds", None)
        if meta.get("generation", 0) > 1:
            meta["generation"] -= 1  # the generic deletion has counted, that of definitions does not
        message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        obj["status"] = terminating(obj, "InstanceDeletionPending", message, ctx.now)


class CustomStrategy(Strategy):
    """The objects of one version of one definition."""

    status_keeps_metadata = True
    counts_generation = True
    needs_version_on_update = True

    def __init__(
        self,
        schema: Object,
        rules: RuleTree | None,
        *,
        has_status: bool,
        scale: ScalePaths | None,
        selectable: Mapping[str, Path],
        definition: Object,
    ) -> None:
        """`schema` is the version's own; nothing of it is changed."""
        self._schema = schema
        self._rules = rules
        self._scale = scale
        self._selectable = selectable
        self._definition = definition
        self.has_status = has_status  # type: ignore[misc]  # of a strategy's class elsewhere, here of each object
        self.selectable_names = frozenset(selectable)  # type: ignore[misc]  # as above

    def default(self, obj: Object, ctx: Context) -> None:
        set_defaults(obj, self._schema)

    def admit_create(self, obj: Object, ctx: Context) -> None:
        if is_terminating(self._definition):
            error = method_not_allowed()
            error.status["message"] = "create not allowed while custom resource definition is terminating"
            raise error

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        return self._problems(obj, None)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        return self._problems(new, old)

    def validate_status(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        return self._problems(new, old)

    def prepare_status(self, new: Object, old: Object, ctx: Context) -> None:
        if isinstance(new.get("status"), dict):
            fresh = copy_object({"status": new["status"]})
            properties = self._schema.get("properties") or {}
            if "status" in properties:
                set_defaults(fresh, {"properties": {"status": properties["status"]}})
            new["status"] = fresh["status"]

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {name: _text(path.first(obj)) for name, path in self._selectable.items()}

    def _problems(self, obj: Object, old: Object | None) -> list[FieldError]:
        errors = validate_value(obj, self._schema, "", old)
        errors += self._scale_problems(obj)
        errors += embedded_problems(obj, self._schema)
        errors += validate_lists(obj, self._schema)
        if self._rules is None:
            return errors
        if any(map(is_blocking, errors)):
            return [*errors, NOT_CHECKED]
        return errors + validate_rules(obj, self._rules, "", old)

    def _scale_problems(self, obj: Object) -> list[FieldError]:
        if self._scale is None:
            return []
        errors: list[FieldError] = []
        for path in (self._scale.spec, self._scale.status):
            found = path.find(obj)
            if not found:
                continue
            value = found[0]
            if not isinstance(value, int) or isinstance(value, bool):
                kind = "string" if isinstance(value, str) else _go_type(value)
                why = f"{path.text} accessor error: {_shown(value)} is of the type {kind}, expected int64"
                errors.append(invalid_value(path.text, 0, why))
            elif value < 0:
                errors.append(invalid_value(path.text, value, "should be a non-negative integer"))
            elif value > _MAX_INT32:
                errors.append(invalid_value(path.text, value, f"should be less than or equal to {_MAX_INT32}"))
        return errors


def _text(value: JSON) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _shown(value: JSON) -> str:
    return "<nil>" if value is None else _text(value)


def _go_type(value: JSON) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return "float64"
    return "map[string]interface {}" if isinstance(value, dict) else "[]interface {}"


def embedded_problems(value: JSON, schema: Object, path: str = "") -> list[FieldError]:
    """What is wrong with whole objects inside of objects (`x-kubernetes-embedded-resource`)."""
    errors: list[FieldError] = []
    if isinstance(value, dict):
        if schema.get(EMBEDDED) and path:
            errors += _object_type(value, path)
        properties = schema.get("properties") or {}
        values = schema.get("additionalProperties")
        for key in sorted(value):
            below = properties.get(key, values if isinstance(values, dict) else None)
            if below is not None:
                errors += embedded_problems(value[key], below, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            errors += embedded_problems(item, schema["items"], f"{path}[{index}]")
    return errors


def _object_type(value: Object, path: str) -> Sequence[FieldError]:
    errors: list[FieldError] = []
    for field in ("apiVersion", "kind"):
        found = value.get(field)
        if found is None:
            errors.append(required(f"{path}.{field}"))
        elif not isinstance(found, str):
            errors.append(invalid_value(f"{path}.{field}", found, "must be a string"))
        elif not found:
            errors.append(invalid_value(f"{path}.{field}", found, "must not be empty"))
    return errors

"""What a request's body and query say: objects, patches, options of writes and deletions.

Bodies may come as bytes (then the content type says what they are) or as JSON values (then they are copied, since the
sender keeps them).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import yaml
from msgspec import Struct

from muster.api.codec import JSON, Object, copy, copy_object, loads
from muster.api.repeated_fields import YamlLoader, repeated_in_json
from muster.apiserver.context import Context
from muster.apiserver.decoding import WrongValue
from muster.apiserver.errors import Qualified, bad_request, invalid, unsupported_media_type
from muster.apiserver.fields import invalid_value, not_supported, required, too_long
from muster.apiserver.request import ApiRequest
from muster.apiserver.resources import Served
from muster.apiserver.schema import is_known
from muster.client.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))

_DECODERS = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
GO_NAMES: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "bool",
    type(None): "null",
}
"""What Go's decoder calls the values of JSON."""
LONGEST_MANAGER = 128
"""How many characters the name of a field manager may have."""
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)


MOST_YAML_VALUES = 1_000_000
"""More values than a body of the largest size can have without aliases that multiply them."""


def load_yaml(text: bytes) -> JSON:
    """The value of a YAML text, as JSON: keys are texts. Raises `yaml.YAMLError`."""
    left = [MOST_YAML_VALUES]
    try:
        return _as_json(yaml.load(text, Loader=YamlLoader), left)
    except RecursionError as error:
        raise yaml.YAMLError("yaml: exceeded max depth") from error
    except (ValueError, TypeError) as error:  # values that look like a number and are none, keys that are maps
        raise yaml.YAMLError(f"yaml: {error}") from error


def _as_json(value: object, left: list[int]) -> JSON:
    left[0] -= 1
    if left[0] < 0:
        raise yaml.YAMLError("yaml: document contains excessive aliasing")
    if isinstance(value, dict):
        return {_key(key): _as_json(item, left) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item, left) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise yaml.YAMLError(f"json: unsupported value: {value}")
    if value is None or isinstance(value, str | int | float):
        return value
    raise yaml.YAMLError(f"json: unsupported type: {type(value).__name__}")


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return str(key).lower()
    if key is None:
        return "null"
    if isinstance(key, int | float):
        return str(key)
    raise yaml.YAMLError("yaml: invalid map key")


def go_bool(text: str) -> bool:
    """Whether a query parameter is true, as Go's ParseBool reads it."""
    return text in _TRUE


class Patch(Struct, frozen=True):
    """A patch by its media type; `force` is apply's."""

    type: str
    value: JSON
    force: bool = False
    manager: str = ""


class DeleteOptions(Struct, frozen=True):
    """What a DELETE asks for; None where it leaves the choice to the server."""

    grace_period_s: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


def manager_of(request: ApiRequest) -> str:
    """Who is to own the fields that a request writes: `fieldManager`, else the first word of the user agent."""
    named = request.parameter("fieldManager")
    if named:
        return named
    agent = request.headers.get("user-agent") or request.headers.get("User-Agent") or "unknown"
    return agent.partition("/")[0][:LONGEST_MANAGER]


def media_type(request: ApiRequest) -> str:
    """The content type of the body without parameters; JSON if there is none."""
    header = request.headers.get("content-type") or request.headers.get("Content-Type") or ""
    return header.split(";")[0].strip().lower() or "application/json"


def read_object(ctx: Context, request: ApiRequest, served: Served) -> Object:
    """The body as an object of the resource's kind; ours to change. Raises StatusError (400, 415)."""
    kind = served.resource.kind
    raw = _raw_object(request, kind)
    check_type(raw, served.resource.api_version, kind)
    prefix = f'{kind} in version "{served.resource.version}" cannot be handled as a {kind}: '
    obj = decode(ctx, served, raw, prefix, _repeated(ctx, request))
    if not isinstance(obj.get("metadata"), dict):
        obj["metadata"] = {}
    obj["apiVersion"], obj["kind"] = served.resource.api_version, kind
    return obj


def _repeated(ctx: Context, request: ApiRequest) -> list[str]:
    """The paths of fields that the text of a body gives twice, where somebody wants to know."""
    if not isinstance(request.body, bytes) or ctx.field_validation == "Ignore":
        return []
    type_ = media_type(request)
    if type_ in ("application/json", "text/plain"):
        return repeated_in_json(request.body)
    if type_ != "application/yaml":
        return []
    loader = YamlLoader(request.body)
    node = loader.get_single_node()
    loader.construct_document(node)
    return loader.repeated(node)


def decode(ctx: Context, served: Served, raw: JSON, prefix: str, repeated: Sequence[str] = ()) -> Object:
    """A fresh object of the kind from a JSON value; what to do about unknown and repeated fields is the request's wish.

    Raises StatusError (400); `prefix` begins its message.
    """
    try:
        obj, unknown = ctx.types.decode(served.resource, raw)
    except WrongValue as error:
        raise bad_request(prefix + error.message(served.resource.kind)) from error
    if unknown or repeated:
        texts = [*(f'duplicate field "{path}"' for path in repeated), *(f'unknown field "{path}"' for path in unknown)]
        if ctx.field_validation == "Strict":
            raise bad_request(f"{prefix}strict decoding error: {', '.join(texts)}")
        if ctx.field_validation == "Warn":
            for text in texts:
                ctx.warn(text)
    return obj


def read_any(request: ApiRequest, kind: str) -> Object:
    """The body as an object of a sub-resource's kind; {} if there is none. Ours to change."""
    if request.body is None or request.body == b"":
        return {}
    return _object(request, kind)


def _object(request: ApiRequest, kind: str) -> Object:
    value = _raw_object(request, kind)
    value = value if isinstance(request.body, bytes) else copy_object(value)
    if not isinstance(value.get("metadata"), dict):
        value["metadata"] = {}
    return value


def _raw_object(request: ApiRequest, kind: str) -> Object:
    """The body as it came, perhaps shared with the sender."""
    value: JSON = request.body
    if isinstance(value, bytes):
        value = _decode(value, media_type(request), kind)
    if not isinstance(value, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error"
        )
    return value


def _decode(body: bytes, type_: str, kind: str) -> JSON:
    if type_ in ("application/json", "text/plain"):
        try:
            return loads(body)
        except ValueError as error:
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
                f"json parse error: {error}"
            ) from error
    if type_ in ("application/yaml", "application/apply-patch+yaml"):
        try:
            return load_yaml(body)
        except yaml.YAMLError as error:
            raise bad_request(f"error converting YAML to JSON: {_yaml_text(error)}") from error
    accepted = ", ".join(_DECODERS)
    raise unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    )


def check_type(obj: Object, api_version: str, kind: str) -> None:
    """The object's apiVersion and kind must be the expected ones, or absent. Raises StatusError (400)."""
    got_version = obj.get("apiVersion") or api_version
    got_kind = obj.get("kind") or kind
    if (got_version, got_kind) == (api_version, kind):
        return
    if not isinstance(got_version, str) or not isinstance(got_kind, str):
        raise bad_request(f"couldn't get version/kind; json parse error: {got_version} and {got_kind} are no texts")
    group, _, version = got_version.rpartition("/")
    prefix = f'{got_kind} in version "{version}" cannot be handled as a {kind}: '
    if not is_known(group, version, got_kind):
        raise bad_request(
            f'{prefix}no kind "{got_kind}" is registered for version "{got_version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
    package = (api_version.rpartition("/")[0] or "core").partition(".")[0]
    raise bad_request(f"{prefix}converting ({version}.{got_kind}) to ({package}.{kind}): unknown conversion")


def read_patch(request: ApiRequest, accepted: Sequence[str] = ()) -> Patch:
    """The body as a patch. Raises StatusError (400, 415). Its value may be shared with the sender.

    `accepted`: the media types that the kind takes, () for all.
    """
    type_ = media_type(request)
    if accepted and type_ not in accepted:
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
        )
    if type_ not in PATCH_TYPES:
        raise unsupported_media_type("415: Unsupported Media Type")
    # What a JSON patch adds becomes part of what its later operations change; other patches stay as they are.
    value: JSON
    if isinstance(request.body, bytes):
        value = _patch_value(request.body, type_)
    else:
        value = request.body if type_ in (MERGE_PATCH, STRATEGIC_MERGE_PATCH) else copy(request.body)
    if type_ == JSON_PATCH:
        if not isinstance(value, list):
            found = GO_NAMES[type(value)]
            why = f"json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
            raise bad_request(f"error decoding patch: {why}")
    elif not isinstance(value, dict):
        text = f"json: cannot unmarshal {GO_NAMES[type(value)]} into Go value of type map[string]interface {{}}"
        raise bad_request(text if type_ == STRATEGIC_MERGE_PATCH else f"error decoding patch: {text}")
    if type_ == APPLY_PATCH and not request.parameter("fieldManager"):
        missing = required("fieldManager", "is required for apply patch")
        raise invalid(Qualified("meta.k8s.io", "PatchOptions"), "", [missing])
    force = go_bool(request.parameter("force"))
    return Patch(type_, value, force, request.parameter("fieldManager"))


def _patch_value(body: bytes, type_: str) -> JSON:
    if type_ == APPLY_PATCH:
        try:
            return load_yaml(body)
        except yaml.YAMLError as error:
            raise bad_request(f"error decoding YAML: error converting YAML to JSON: {_yaml_text(error)}") from error
    try:
        return loads(body)
    except ValueError as error:
        why = "unexpected end of JSON input" if _is_cut_off(error) else f"invalid character: {error}"
        raise bad_request(why if type_ == STRATEGIC_MERGE_PATCH else f"error decoding patch: {why}") from error


def _is_cut_off(error: ValueError) -> bool:
    text = str(error)
    return "end of data" in text or "empty document" in text


def _yaml_text(error: yaml.YAMLError) -> str:
    """A YAML error in one line, as Go's library says it."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    return f"yaml: line {mark.line}: {problem}" if mark is not None and problem else " ".join(str(error).split())


def read_write_options(ctx: Context, request: ApiRequest, kind: str) -> None:
    """dryRun and fieldValidation of a create, update or patch. Raises StatusError (422)."""
    if not request.query:
        return
    of = Qualified("meta.k8s.io", kind)
    dry_run = [value for key, value in request.query if key == "dryRun"]
    if dry_run and any(value != "All" for value in dry_run):
        raise invalid(of, "", [not_supported("dryRun", dry_run, ["All"])])
    ctx.dry_run = bool(dry_run)
    if len(ctx.manager) > LONGEST_MANAGER:
        raise invalid(of, "", [too_long("fieldManager", LONGEST_MANAGER)])
    checking = request.parameter("fieldValidation")
    supported = ("", "Ignore", "Strict", "Warn")
    if checking not in supported:
        raise invalid(of, "", [not_supported("fieldValidation", checking, supported)])
    if checking:
        ctx.field_validation = checking


def read_delete_options(ctx: Context, request: ApiRequest) -> DeleteOptions:
    """DeleteOptions from the body, else from the query. Raises StatusError (400, 422)."""
    body: Object = {}
    if request.body:
        body = _object(request, "DeleteOptions")
    for key in ("propagationPolicy", "gracePeriodSeconds", "dryRun", "orphanDependents"):
        text = request.parameter(key)
        if text and not request.body:
            body[key] = _query_value(key, text)
    of = Qualified("meta.k8s.io", "DeleteOptions")
    propagation = body.get("propagationPolicy")
    if propagation is not None and body.get("orphanDependents") is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid(of, "", [invalid_value("propagationPolicy", propagation, why)])
    if propagation not in (None, "Foreground", "Background", "Orphan"):
        choices = ("Foreground", "Background", "Orphan", "nil")
        raise invalid(of, "", [not_supported("propagationPolicy", propagation, choices)])
    dry_run = body.get("dryRun") or []
    if dry_run and dry_run != ["All"]:
        raise invalid(of, "", [not_supported("dryRun", dry_run, ["All"])])
    if body.get("orphanDependents") is not None:
        propagation = "Orphan" if body["orphanDependents"] else "Background"
    ctx.dry_run = bool(dry_run)
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        body.get("gracePeriodSeconds"),
        propagation,
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        ctx.dry_run,
    )


def _query_value(key: str, text: str) -> JSON:
    match key:
        case "gracePeriodSeconds":
            try:
                return int(text)
            except ValueError as error:
                raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error
        case "dryRun":
            return [text]
        case "orphanDependents":
            return go_bool(text)
    return text

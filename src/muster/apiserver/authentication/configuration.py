"""The AuthenticationConfiguration of `--authentication-config`: from the text of a file to typed values.

Decoding is strict, as upstream's: unknown and duplicate fields are errors, in the words of its decoders. What the
fields may hold is in `validation`. Source: apiserver `pkg/apis/apiserver/v1/types.go` and recordings of a real server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import yaml
from msgspec import Struct, convert

from muster.api.codec import JSON, Object

GROUP = "apiserver.config.k8s.io"
KIND = "AuthenticationConfiguration"
VERSIONS = ("v1", "v1beta1", "v1alpha1")
_OTHER_KINDS = (
    "AdmissionConfiguration",
    "AuthorizationConfiguration",
    "EgressSelectorConfiguration",
    "EncryptionConfiguration",
    "TracingConfiguration",
)
_SCHEME = "pkg/runtime/scheme.go:111"


class ConfigurationError(Exception):
    """A file cannot be used; the message is a real server's. Not retryable with the same text."""


class Issuer(Struct, frozen=True, rename="camel"):
    """Who issues tokens, and for whom."""

    url: str = ""
    discovery_url: str = ""
    certificate_authority: str = ""
    audiences: tuple[str, ...] = ()
    audience_match_policy: str = ""
    egress_selector_type: str = ""


class ClaimRule(Struct, frozen=True, rename="camel"):
    """What must hold of the claims: one claim's value, or an expression."""

    claim: str = ""
    required_value: str = ""
    expression: str = ""
    message: str = ""


class PrefixedClaim(Struct, frozen=True):
    """Where a name comes from: a claim with a prefix, or an expression."""

    claim: str = ""
    prefix: str | None = None
    expression: str = ""


class PlainClaim(Struct, frozen=True):
    """Where a value comes from: a claim or an expression."""

    claim: str = ""
    expression: str = ""


class ExtraMapping(Struct, frozen=True, rename="camel"):
    """One key of a user's extra."""

    key: str = ""
    value_expression: str = ""


class ClaimMappings(Struct, frozen=True):
    """How claims become a user."""

    username: PrefixedClaim = PrefixedClaim()
    groups: PrefixedClaim = PrefixedClaim()
    uid: PlainClaim = PlainClaim()
    extra: tuple[ExtraMapping, ...] = ()


class UserRule(Struct, frozen=True):
    """What must hold of the user."""

    expression: str = ""
    message: str = ""


class JWTAuthenticator(Struct, frozen=True, rename="camel"):
    """One issuer with its rules."""

    issuer: Issuer = Issuer()
    claim_validation_rules: tuple[ClaimRule, ...] = ()
    claim_mappings: ClaimMappings = ClaimMappings()
    user_validation_rules: tuple[UserRule, ...] = ()


class Condition(Struct, frozen=True):
    """A path that anonymous requests may ask for."""

    path: str = ""


class Anonymous(Struct, frozen=True):
    """Whether requests without credentials are let in, and to which paths (none named: to all).

    `conditions`: an empty list is something else than none when a change of the file is judged, as upstream.
    """

    enabled: bool = False
    conditions: tuple[Condition, ...] | None = None


class AuthenticationConfiguration(Struct, frozen=True):
    """The file as a whole."""

    jwt: tuple[JWTAuthenticator, ...] = ()
    anonymous: Anonymous | None = None


class _Go(Struct, frozen=True):
    """A type of upstream, for its decoder's messages: its name, its fields' types; `of`: what a list holds."""

    name: str
    fields: Mapping[str, _Go] = {}
    of: _Go | None = None


def _list(of: _Go) -> _Go:
    return _Go(f"[]{of.name}", of=of)


_TEXT, _BOOL = _Go("string"), _Go("bool")


def _texts(*names: str) -> dict[str, _Go]:
    return dict.fromkeys(names, _TEXT)


_ISSUER = _Go(
    "v1.Issuer",
    {
        **_texts("url", "discoveryURL", "certificateAuthority", "audienceMatchPolicy", "egressSelectorType"),
        "audiences": _list(_TEXT),
    },
)
_PREFIXED = _Go("v1.PrefixedClaimOrExpression", _texts("claim", "prefix", "expression"))
_PLAIN = _Go("v1.ClaimOrExpression", _texts("claim", "expression"))
_MAPPINGS = _Go(
    "v1.ClaimMappings",
    {
        "username": _PREFIXED,
        "groups": _PREFIXED,
        "uid": _PLAIN,
        "extra": _list(_Go("v1.ExtraMapping", _texts("key", "valueExpression"))),
    },
)
_JWT = _Go(
    "v1.JWTAuthenticator",
    {
        "issuer": _ISSUER,
        "claimValidationRules": _list(
            _Go("v1.ClaimValidationRule", _texts("claim", "requiredValue", "expression", "message"))
        ),
        "claimMappings": _MAPPINGS,
        "userValidationRules": _list(_Go("v1.UserValidationRule", _texts("expression", "message"))),
    },
)
_ANONYMOUS = _Go(
    "v1.AnonymousAuthConfig",
    {"enabled": _BOOL, "conditions": _list(_Go("v1.AnonymousAuthCondition", _texts("path")))},
)
_ROOT = _Go(
    "v1.AuthenticationConfiguration",
    {**_texts("apiVersion", "kind"), "jwt": _list(_JWT), "anonymous": _ANONYMOUS},
)


class _Loader(yaml.CSafeLoader):
    """Reads YAML as upstream does and notes keys that are there twice."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.repeated: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in seen:
                self.repeated.append(f'line {key_node.start_mark.line + 1}: key "{key}" already set in map')
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# A timestamp stays the text that it is: there are none in JSON.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def decode_configuration(text: str) -> AuthenticationConfiguration:
    """The configuration in the text of a file (YAML or JSON). Raises `ConfigurationError`."""
    if not text:
        raise ConfigurationError("empty config data")
    value, repeated = _parsed(text)
    version = _check_kind(value, text)
    value = cast(Object, value)
    wrong = next(_wrong_types(value, _ROOT, "", ""), None)
    if wrong is not None:
        raise ConfigurationError(f"json: cannot unmarshal {wrong}".replace("v1.", f"{version}."))
    problems = [f"unknown field {_quoted(path)}" for path in _unknown(value, _ROOT, "")]
    if repeated:
        problems.insert(0, "yaml: unmarshal errors:\n  " + "\n  ".join(repeated))
    if problems:
        raise ConfigurationError("strict decoding error: " + ", ".join(problems))
    return convert(_without_null(value, _ROOT), AuthenticationConfiguration)


def _parsed(text: str) -> tuple[JSON, list[str]]:
    try:
        loader = _Loader(text)
        try:
            value = cast(JSON, loader.get_single_data())
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        raise ConfigurationError(f"yaml: line {max(line, 1)}: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"yaml: {' '.join(str(error).split())}") from error
    return value, loader.repeated


def _check_kind(value: JSON, text: str) -> str:
    """The version of a configuration. Raises `ConfigurationError` for what is something else."""
    fields = value if isinstance(value, dict) else {}
    kind, api_version = fields.get("kind"), fields.get("apiVersion")
    if value is not None and not isinstance(value, dict):
        given = f"{_json_kind(value)} into Go value of type struct"
        raise ConfigurationError(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {given} "
            '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
    if not kind or not isinstance(kind, str):
        raise ConfigurationError(f"Object 'Kind' is missing in '{text}'")
    if not api_version or not isinstance(api_version, str):
        raise ConfigurationError(f"Object 'apiVersion' is missing in '{text}'")
    group, _, version = api_version.rpartition("/")
    if group != GROUP or version not in VERSIONS or kind not in (KIND, *_OTHER_KINDS):
        raise ConfigurationError(f'no kind "{kind}" is registered for version "{api_version}" in scheme "{_SCHEME}"')
    if kind != KIND:
        raise ConfigurationError(f"expected {KIND}, got *apiserver.{kind}")
    return version


def _wrong_types(value: JSON, go: _Go, owner: str, path: str) -> Iterator[str]:
    """Upstream's words for each value that is not of its field's type; the first is the one reported."""
    if value is None:
        return
    if not _is_of(value, go):
        yield f"{_json_kind(value)} into Go struct field {owner}.{path} of type {go.name}"
    elif go.of is not None:
        for item in cast(list[JSON], value):
            yield from _wrong_types(item, go.of, owner, path)
    elif go.fields:
        name = go.name.removeprefix("v1.")
        for key, item in sorted(cast(Object, value).items(), key=lambda pair: str(pair[0])):
            if key in go.fields:
                yield from _wrong_types(item, go.fields[key], name, f"{path}.{key}" if path else key)


def _is_of(value: JSON, go: _Go) -> bool:
    if go.of is not None:
        return isinstance(value, list)
    if go.fields:
        return isinstance(value, dict)
    return isinstance(value, bool if go is _BOOL else str)


def _json_kind(value: JSON) -> str:
    kinds: tuple[tuple[type, str], ...] = ((bool, "bool"), (str, "string"), (list, "array"), (dict, "object"))
    return next((name for type_, name in kinds if isinstance(value, type_)), "number")


def _unknown(value: JSON, go: _Go, path: str) -> Iterator[str]:
    """The paths of fields that the types do not have, in the order of a JSON text with sorted keys."""
    if isinstance(value, list) and go.of is not None:
        for at, item in enumerate(value):
            yield from _unknown(item, go.of, f"{path}[{at}]")
    elif isinstance(value, dict) and go.fields:
        for key in sorted(value, key=str):
            below = f"{path}.{key}" if path else str(key)
            if key in go.fields:
                yield from _unknown(value[key], go.fields[key], below)
            else:
                yield below


def _without_null(value: JSON, go: _Go) -> JSON:
    """The value as Go has it: fields that are null are absent, a null in a list is an empty value of its type."""
    if isinstance(value, dict):
        names = {"discoveryURL": "discoveryUrl"}
        return {
            names.get(key, key): _without_null(item, go.fields[key]) for key, item in value.items() if item is not None
        }
    if isinstance(value, list) and go.of is not None:
        empty: JSON = {} if go.of.fields else ""
        return [empty if item is None else _without_null(item, go.of) for item in value]
    return value


def _quoted(text: str) -> str:
    return f'"{text}"'

"""What the fields of an AuthenticationConfiguration may hold, and the configuration with its expressions compiled.

Errors come in the order and words of upstream's `pkg/apis/apiserver/validation`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence

from msgspec import Struct

from muster.apiserver.authentication.configuration import (
    Anonymous,
    AuthenticationConfiguration,
    ClaimMappings,
    ClaimRule,
    ConfigurationError,
    Issuer,
    JWTAuthenticator,
    PlainClaim,
    PrefixedClaim,
    UserRule,
)
from muster.apiserver.authentication.expressions import CompilationFailed, Compiled, Subject, compile_for
from muster.apiserver.authentication.signatures import ALGORITHMS
from muster.apiserver.fields import (
    FieldError,
    domain_path_errors,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    too_many,
)

MOST_ISSUERS = 64
_PREFIX_NEEDED = "prefix is required when claim is set. It can be set to an empty string to disable prefixing"
_EMAIL_VERIFIED = (
    "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression "
    "or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"
)
_RESERVED = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class Checked(Struct, frozen=True):
    """One issuer with its compiled expressions, by their text."""

    rules: JWTAuthenticator
    compiled: dict[tuple[Subject, str], Compiled]
    algorithms: tuple[str, ...] = ALGORITHMS
    """How tokens may be signed."""

    def claims(self, text: str) -> Compiled:
        """The compiled expression over claims."""
        return self.compiled["claims", text]

    def user(self, text: str) -> Compiled:
        """The compiled expression over the user."""
        return self.compiled["user", text]


class CheckedConfiguration(Struct, frozen=True):
    """A configuration that may be used."""

    issuers: tuple[Checked, ...] = ()
    anonymous: Anonymous | None = None


class _Checker:
    """Collects the errors and the compiled expressions of one issuer."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.compiled: dict[tuple[Subject, str], Compiled] = {}

    def compile(self, field: str, text: str, subject: Subject = "claims", *, rule: bool = False) -> Compiled | None:
        try:
            found = compile_for(text, subject, must_be_bool=rule)
        except CompilationFailed as error:
            self.errors.append(invalid_value(field, text, str(error)))
            return None
        self.compiled[subject, text] = found
        return found


def check_configuration(
    config: AuthenticationConfiguration,
    disallowed_issuers: Sequence[str] = (),
    algorithms: tuple[str, ...] = ALGORITHMS,
) -> tuple[CheckedConfiguration, list[FieldError]]:
    """The configuration with compiled expressions, and everything that is wrong with it."""
    errors: list[FieldError] = []
    if len(config.jwt) > MOST_ISSUERS:
        errors.append(too_many("jwt", len(config.jwt), MOST_ISSUERS))
        return CheckedConfiguration(), errors
    seen_urls: set[str] = set()
    seen_discoveries: set[str] = set()
    issuers: list[Checked] = []
    for at, rules in enumerate(config.jwt):
        checker = _Checker()
        _check_authenticator(checker, rules, disallowed_issuers, f"jwt[{at}]")
        errors += checker.errors
        issuers.append(Checked(rules, checker.compiled, algorithms))
        field = f"jwt[{at}].issuer"
        errors += _once(f"{field}.url", rules.issuer.url, seen_urls)
        if rules.issuer.discovery_url:
            errors += _once(f"{field}.discoveryURL", rules.issuer.discovery_url, seen_discoveries)
    anonymous = config.anonymous
    if anonymous is not None and anonymous.conditions and not anonymous.enabled:
        shown = [{"Path": condition.path} for condition in anonymous.conditions]
        why = "enabled should be set to true when conditions are defined"
        errors.append(invalid_value("anonymous.conditions", shown, why))
    return CheckedConfiguration(tuple(issuers), anonymous), errors


def joined(errors: Sequence[FieldError]) -> str:
    """Errors as one text, each once. Source: apimachinery `Aggregate.Error`."""
    texts = list(dict.fromkeys(f"{error.field}: {error.body}" for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def checked_at_start(
    config: AuthenticationConfiguration, own_issuers: Sequence[str], algorithms: tuple[str, ...] = ALGORITHMS
) -> CheckedConfiguration:
    """The configuration of a server that starts. Raises `ConfigurationError`."""
    checked, errors = check_configuration(config, algorithms=algorithms)
    if errors:
        raise ConfigurationError(f"invalid authentication configuration: {joined(errors)}")
    for rules in config.jwt:
        # The server's own issuers are only looked at when authenticators are built.
        clash = _url_errors("issuer.url", rules.issuer.url, own_issuers)
        if clash:
            raise ConfigurationError(joined(clash))
    unknown = next((name for name in algorithms if name not in ALGORITHMS), None)
    if unknown is not None:
        raise ConfigurationError(f'oidc: unsupported signing alg: "{unknown}"')
    check_usable(config)
    return checked


def checked_at_reload(
    config: AuthenticationConfiguration, own_issuers: Sequence[str], anonymous: Anonymous | None
) -> CheckedConfiguration:
    """The configuration that replaces another; `anonymous` is that of the file at the start.

    Raises `ConfigurationError`.
    """
    checked, errors = check_configuration(config, own_issuers)
    if config.anonymous != anonymous:
        errors.append(forbidden_field("anonymous", "changed from initial configuration file"))
    if errors:
        raise ConfigurationError(joined(errors))
    return checked


def check_usable(config: AuthenticationConfiguration) -> None:
    """Whether authenticators can be built from a valid configuration. Raises `ConfigurationError`."""
    for rules in config.jwt:
        egress = rules.issuer.egress_selector_type
        if egress:
            raise ConfigurationError(f'oidc: egress lookup required with egress selector type "{egress}"')


def _once(field: str, value: str, seen: set[str]) -> list[FieldError]:
    if value in seen:
        return [duplicate(field, value)]
    seen.add(value)
    return []


def _check_authenticator(checker: _Checker, rules: JWTAuthenticator, disallowed: Sequence[str], field: str) -> None:
    checker.errors += _issuer_errors(rules.issuer, disallowed, f"{field}.issuer")
    verified = _check_claim_rules(checker, rules.claim_validation_rules, f"{field}.claimValidationRules")
    _check_mappings(checker, rules.claim_mappings, f"{field}.claimMappings", is_email_verified=verified)
    _check_user_rules(checker, rules.user_validation_rules, f"{field}.userValidationRules")


def _issuer_errors(issuer: Issuer, disallowed: Sequence[str], field: str) -> list[FieldError]:
    errors = _url_errors(f"{field}.url", issuer.url, disallowed)
    if issuer.discovery_url:
        where = f"{field}.discoveryURL"
        if issuer.url and issuer.url.rstrip("/") == issuer.discovery_url.rstrip("/"):
            errors.append(invalid_value(where, issuer.discovery_url, "discoveryURL must be different from URL"))
        errors += _url_errors(where, issuer.discovery_url, ())
    errors += _audience_errors(issuer, field)
    if issuer.certificate_authority and not is_certificate_bundle(issuer.certificate_authority):
        why = "data does not contain any valid RSA or ECDSA certificates"
        errors.append(invalid_value(f"{field}.certificateAuthority", "<omitted>", why))
    if issuer.egress_selector_type not in ("", "controlplane", "cluster"):
        why = "egress selector must be either controlplane or cluster"
        errors.append(invalid_value(f"{field}.egressSelectorType", issuer.egress_selector_type, why))
    return errors


def _audience_errors(issuer: Issuer, field: str) -> list[FieldError]:
    where = f"{field}.audiences"
    if not issuer.audiences:
        return [required(where, f"at least one {where} is required")]
    errors: list[FieldError] = []
    seen: set[str] = set()
    for at, audience in enumerate(issuer.audiences):
        if not audience:
            errors.append(required(f"{where}[{at}]"))
        errors += _once(f"{where}[{at}]", audience, seen)
    policy, policy_field = issuer.audience_match_policy, f"{field}.audienceMatchPolicy"
    if len(issuer.audiences) > 1 and policy != "MatchAny":
        why = "audienceMatchPolicy must be MatchAny for multiple audiences"
        errors.append(invalid_value(policy_field, policy, why))
    if len(issuer.audiences) == 1 and policy not in ("", "MatchAny"):
        why = "audienceMatchPolicy must be empty or MatchAny for single audience"
        errors.append(invalid_value(policy_field, policy, why))
    return errors


def is_certificate_bundle(text: str) -> bool:
    """Whether the text holds a certificate, and none that cannot be read."""
    found = _CERTIFICATE.findall(text)
    if not found:
        return False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata="\n".join(found))
    except (ssl.SSLError, ValueError):
        return False
    return True


def _url_errors(field: str, url: str, disallowed: Sequence[str]) -> list[FieldError]:
    if not url:
        return [required(field)]
    problem = _parse_problem(url)
    if problem:
        shown = url.replace("\x7f", r"\u007f")
        return [FieldError("FieldValueInvalid", field, f'Invalid value: "{shown}": parse "{shown}": {problem}')]
    if url in disallowed:
        listed = " ".join(sorted(disallowed))
        return [invalid_value(field, url, f"URL must not overlap with disallowed issuers: [{listed}]")]
    errors: list[FieldError] = []
    before_fragment, _, fragment = url.partition("#")
    before_query, _, query = before_fragment.partition("?")
    scheme, colon, rest = before_query.partition(":")
    if not colon or scheme.lower() != "https":
        errors.append(invalid_value(field, url, "URL scheme must be https"))
    if colon and rest.startswith("//") and "@" in rest[2:].partition("/")[0]:
        errors.append(invalid_value(field, url, "URL must not contain a username or password"))
    if query:
        errors.append(invalid_value(field, url, "URL must not contain a query"))
    if fragment:
        errors.append(invalid_value(field, url, "URL must not contain a fragment"))
    return errors


def _parse_problem(url: str) -> str:
    """Why Go cannot parse a URL; "" if it can. Source: Go's `net/url`."""
    if any(ord(mark) < 0x20 or ord(mark) == 0x7F for mark in url):
        return "net/url: invalid control character in URL"
    rest = url.partition("#")[0]
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", rest)
    if rest.startswith(":"):
        return "missing protocol scheme"
    if scheme is None and ":" in rest.partition("/")[0]:
        return "first path segment in URL cannot contain colon"
    rest = rest[scheme.end() :] if scheme else rest
    rest = rest.partition("?")[0]
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    info, _, host = authority.rpartition("@")
    if info and not re.fullmatch(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", info):
        return "net/url: invalid userinfo"
    return _host_problem(host) or _escape_problem(path)


def _host_problem(host: str) -> str:
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            return "missing ']' in host"
        name, port = host[: end + 1], host[end + 1 :]
    else:
        name, colon, digits = host.rpartition(":")
        name, port = (name, colon + digits) if colon else (host, "")
    if port and not re.fullmatch(r":\d*", port):
        return f'invalid port "{port}" after host'
    escape = _escape_problem(name)
    if escape:
        return escape
    odd = re.search(r"""[^A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>"%\x80-\U0010ffff]""", name)
    return f'invalid character "{odd[0]}" in host name' if odd else ""


def _escape_problem(text: str) -> str:
    odd = re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", text)
    return f'invalid URL escape "{odd[0]}"' if odd else ""


def _check_claim_rules(checker: _Checker, rules: Sequence[ClaimRule], field: str) -> bool:
    """Check the rules; returns whether one of them looks at `claims.email_verified`."""
    seen_claims: set[str] = set()
    seen_expressions: set[str] = set()
    verified = False
    for at, rule in enumerate(rules):
        where = f"{field}[{at}]"
        if rule.claim and rule.expression:
            checker.errors.append(invalid_value(where, rule.claim, "claim and expression can't both be set"))
        elif rule.claim:
            if rule.message:
                why = "may not be specified when claim is set"
                checker.errors.append(invalid_value(f"{where}.message", rule.message, why))
            checker.errors += _once(f"{where}.claim", rule.claim, seen_claims)
        elif rule.expression:
            if rule.required_value:
                why = "may not be specified when expression is set"
                checker.errors.append(invalid_value(f"{where}.requiredValue", rule.required_value, why))
            repeated = _once(f"{where}.expression", rule.expression, seen_expressions)
            checker.errors += repeated
            if not repeated:
                compiled = checker.compile(f"{where}.expression", rule.expression, rule=True)
                verified = verified or (compiled is not None and compiled.selects("email_verified"))
        else:
            checker.errors.append(required(where, "claim or expression is required"))
    return verified


def _check_mappings(checker: _Checker, mappings: ClaimMappings, field: str, *, is_email_verified: bool) -> None:
    username = _check_prefixed(checker, mappings.username, f"{field}.username", is_required=True)
    _check_prefixed(checker, mappings.groups, f"{field}.groups", is_required=False)
    _check_plain(checker, mappings.uid, f"{field}.uid")
    verified = is_email_verified or (username is not None and username.selects("email_verified"))
    seen: set[str] = set()
    for at, extra in enumerate(mappings.extra):
        where = f"{field}.extra[{at}]"
        key, value = f"{where}.key", f"{where}.valueExpression"
        checker.errors += domain_path_errors(extra.key, key)
        if not extra.key:
            continue
        if extra.key != extra.key.lower():
            checker.errors.append(invalid_value(key, extra.key, "must be lowercase"))
        if _is_reserved(extra.key):
            checker.errors.append(invalid_value(key, extra.key, _RESERVED))
        repeated = _once(key, extra.key, seen)
        checker.errors += repeated
        if repeated:
            continue
        if not extra.value_expression:
            checker.errors.append(required(value))
            continue
        compiled = checker.compile(value, extra.value_expression)
        verified = verified or (compiled is not None and compiled.selects("email_verified"))
    if username is not None and username.selects("email") and not verified:
        where = f"{field}.username.expression"
        checker.errors.append(invalid_value(where, mappings.username.expression, _EMAIL_VERIFIED))


def _check_prefixed(checker: _Checker, mapping: PrefixedClaim, field: str, *, is_required: bool) -> Compiled | None:
    if mapping.claim and mapping.expression:
        checker.errors.append(invalid_value(field, "", "claim and expression can't both be set"))
    elif mapping.expression:
        if mapping.prefix is not None:
            why = "may not be specified when expression is set"
            checker.errors.append(invalid_value(f"{field}.prefix", mapping.prefix, why))
        return checker.compile(f"{field}.expression", mapping.expression)
    elif mapping.claim:
        if mapping.prefix is None:
            checker.errors.append(required(f"{field}.prefix", _PREFIX_NEEDED))
    elif is_required:
        checker.errors.append(required(field, "claim or expression is required"))
    return None


def _check_plain(checker: _Checker, mapping: PlainClaim, field: str) -> None:
    if mapping.claim and mapping.expression:
        checker.errors.append(invalid_value(field, "", "claim and expression can't both be set"))
    elif mapping.expression:
        checker.compile(f"{field}.expression", mapping.expression)


def _is_reserved(key: str) -> bool:
    domain = key.partition("/")[0]
    return any(domain == name or domain.endswith(f".{name}") for name in ("kubernetes.io", "k8s.io"))


def _check_user_rules(checker: _Checker, rules: Sequence[UserRule], field: str) -> None:
    seen: set[str] = set()
    for at, rule in enumerate(rules):
        where = f"{field}[{at}].expression"
        if not rule.expression:
            checker.errors.append(required(where))
            continue
        repeated = _once(where, rule.expression, seen)
        checker.errors += repeated
        if not repeated:
            checker.compile(where, rule.expression, "user", rule=True)

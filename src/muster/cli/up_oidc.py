"""The options `--oidc-…` of kube-apiserver: one issuer of tokens without a configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from muster.cli.errors import BadInput

if TYPE_CHECKING:
    from muster.apiserver.authentication.configuration import AuthenticationConfiguration

USERNAME_CLAIM = "sub"
SIGNING_ALGORITHMS = ("RS256",)
NO_PREFIX = "-"


@dataclass(frozen=True)
class OidcOptions:
    """One issuer of tokens. Source: kube-apiserver `pkg/kubeapiserver/options/authentication.go`."""

    oidc_issuer_url: Annotated[str | None, Parameter(show_default=False)] = None
    """The issuer (OpenID Connect) whose tokens are accepted, as https URL; instead of --authentication-config."""

    oidc_client_id: Annotated[str | None, Parameter(show_default=False)] = None
    """For whom its tokens must be."""

    oidc_ca_file: Annotated[Path | None, Parameter(show_default=False)] = None
    """The CA of the issuer's server (PEM). Default: those of the system."""

    oidc_username_claim: Annotated[str | None, Parameter(show_default=False)] = None
    """The claim that is the user's name. Default: sub."""

    oidc_username_prefix: Annotated[str | None, Parameter(show_default=False)] = None
    """What names begin with; - for nothing. Default: the issuer's URL and #, and nothing for claim email."""

    oidc_groups_claim: Annotated[str | None, Parameter(show_default=False)] = None
    """The claim that is the user's groups. Default: there are none."""

    oidc_groups_prefix: Annotated[str | None, Parameter(show_default=False)] = None
    """What names of groups begin with."""

    oidc_required_claim: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """CLAIM=VALUE that tokens must have; may be given repeatedly."""

    oidc_signing_algs: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """How tokens may be signed. Default: RS256."""

    @property
    def is_set(self) -> bool:
        """Whether any of them is given."""
        return self != NO_ISSUER

    @property
    def algorithms(self) -> tuple[str, ...]:
        """How tokens may be signed."""
        return tuple(name for each in self.oidc_signing_algs for name in each.split(",")) or SIGNING_ALGORITHMS


NO_ISSUER = OidcOptions()


def configuration_of(options: OidcOptions) -> AuthenticationConfiguration:
    """The configuration that the options stand for. Raises `BadInput`."""
    from muster.apiserver.authentication.configuration import (
        AuthenticationConfiguration,
        ClaimMappings,
        ClaimRule,
        Issuer,
        JWTAuthenticator,
        PrefixedClaim,
    )

    url, client = options.oidc_issuer_url, options.oidc_client_id
    if not url or not client:
        raise BadInput("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
    groups = options.oidc_groups_claim
    mappings = ClaimMappings(
        username=PrefixedClaim(_username_claim(options), _username_prefix(options, url)),
        groups=PrefixedClaim(groups, options.oidc_groups_prefix or "") if groups else PrefixedClaim(),
    )
    rules = tuple(ClaimRule(claim, value) for claim, value in sorted(_required(options).items()))
    issuer = Issuer(url, certificate_authority=_authority(options.oidc_ca_file), audiences=(client,))
    return AuthenticationConfiguration((JWTAuthenticator(issuer, rules, mappings),))


def _username_claim(options: OidcOptions) -> str:
    claim = options.oidc_username_claim
    return USERNAME_CLAIM if claim is None else claim


def _username_prefix(options: OidcOptions, url: str) -> str:
    prefix = options.oidc_username_prefix
    if prefix == NO_PREFIX:
        return ""
    return prefix or ("" if _username_claim(options) == "email" else f"{url}#")


def _required(options: OidcOptions) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in (each for given in options.oidc_required_claim for each in given.split(",")):
        claim, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(
                f'invalid argument "{pair}" for "--oidc-required-claim" flag: malformed pair, expect string=string'
            )
        found[claim.strip()] = value.strip()
    return found


def _authority(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"open {path}: {(error.strerror or str(error)).lower()}") from error

"""The options `--oidc-…`: which configuration they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.apiserver.authentication.configuration import ClaimRule, PrefixedClaim
from muster.cli.errors import BadInput
from muster.cli.up_access import AccessOptions, configured
from muster.cli.up_oidc import OidcOptions, configuration_of

URL = "https://login.example.org/a"


def options(**more: object) -> OidcOptions:
    return OidcOptions(**{"oidc_issuer_url": URL, "oidc_client_id": "kube", **more})  # type: ignore[arg-type]  # of tables


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({}, PrefixedClaim("sub", f"{URL}#")),
        ({"oidc_username_claim": "email"}, PrefixedClaim("email", "")),
        ({"oidc_username_prefix": "-"}, PrefixedClaim("sub", "")),
        ({"oidc_username_prefix": "o:"}, PrefixedClaim("sub", "o:")),
        ({"oidc_username_claim": "email", "oidc_username_prefix": "o:"}, PrefixedClaim("email", "o:")),
    ],
)
def test_names_begin_with_the_issuer_unless_they_are_addresses_of_mail(
    more: dict[str, object], want: PrefixedClaim
) -> None:
    (rules,) = configuration_of(options(**more)).jwt
    assert rules.claim_mappings.username == want


def test_all_options_make_one_issuer() -> None:
    given = options(
        oidc_groups_claim="groups",
        oidc_groups_prefix="g:",
        oidc_required_claim=("b=2,a=1", "c=x=y"),
        oidc_signing_algs=("ES256,RS256",),
    )
    (rules,) = configuration_of(given).jwt
    assert (rules.issuer.url, rules.issuer.audiences) == (URL, ("kube",))
    assert rules.claim_mappings.groups == PrefixedClaim("groups", "g:")
    assert rules.claim_validation_rules == (ClaimRule("a", "1"), ClaimRule("b", "2"), ClaimRule("c", "x=y"))
    config = configured(AccessOptions(oidc=given))[1]
    assert config is not None
    assert config.issuers[0].algorithms == ("ES256", "RS256")


def test_without_a_word_about_it_tokens_are_signed_with_rs256() -> None:
    config = configured(AccessOptions(oidc=options()))[1]
    assert config is not None
    assert config.issuers[0].algorithms == ("RS256",)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (OidcOptions(oidc_groups_claim="a"), "must be specified together when any oidc-* flags are set"),
        (options(oidc_signing_algs=("HS256",)), 'oidc: unsupported signing alg: "HS256"'),
        (options(oidc_required_claim=("a",)), "malformed pair, expect string=string"),
        (options(oidc_ca_file=Path("/nonexistent")), "open /nonexistent: no such file or directory"),
        (options(oidc_username_claim=""), "jwt[0].claimMappings.username: Required value: claim or expression"),
        (options(oidc_issuer_url="http://a"), 'jwt[0].issuer.url: Invalid value: "http://a": URL scheme must be https'),
    ],
)
def test_options_that_cannot_be_are_refused_as_by_kube_apiserver(given: OidcOptions, want: str) -> None:
    with pytest.raises(BadInput) as found:
        configured(AccessOptions(oidc=given))
    assert want in str(found.value)


def test_a_file_and_options_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="mutually exclusive"):
        configured(AccessOptions(authentication_config=tmp_path / "authn.yaml", oidc=options()))

"""The options of `muster up` that say who may do what."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.apiserver.authentication.configuration import Anonymous
from muster.apiserver.authentication.validation import CheckedConfiguration
from muster.cli.errors import BadInput
from muster.cli.serving import serving_context
from muster.cli.up_access import AccessOptions, anonymous_of, certificates_of, read_configuration, signing_key


def test_nobody_is_asked_unless_an_option_says_so() -> None:
    assert not AccessOptions().asks
    assert AccessOptions(authorization_mode="RBAC").asks
    assert AccessOptions(anonymous_auth="false").asks


@pytest.mark.parametrize(
    ("options", "in_file", "want"),
    [
        (AccessOptions(authorization_mode="RBAC"), None, Anonymous(enabled=True)),
        (AccessOptions(authorization_mode="RBAC", anonymous_auth="false"), None, Anonymous()),
        (AccessOptions(authorization_mode="RBAC"), Anonymous(), Anonymous()),
        (AccessOptions(), None, Anonymous()),
        (AccessOptions(anonymous_auth="true"), None, Anonymous()),
        (AccessOptions(), Anonymous(enabled=True), Anonymous(enabled=True)),
    ],
)
def test_who_comes_without_credentials(options: AccessOptions, in_file: Anonymous | None, want: Anonymous) -> None:
    assert anonymous_of(options, CheckedConfiguration((), in_file)) == want


def test_the_option_and_the_file_do_not_both_say_it() -> None:
    config = CheckedConfiguration((), Anonymous(enabled=True))
    with pytest.raises(BadInput, match="cannot be set when anonymous field is configured"):
        anonymous_of(AccessOptions(authorization_mode="RBAC", anonymous_auth="true"), config)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file or directory"):
        read_configuration(tmp_path / "authn.yaml")
    with pytest.raises(BadInput, match="--client-ca-file"):
        certificates_of(AccessOptions(client_ca_file=tmp_path / "ca.pem"))


def test_keys_are_kept_with_the_data_and_are_for_the_owner_only(tmp_path: Path) -> None:
    assert signing_key(tmp_path).jwk == signing_key(tmp_path).jwk
    assert serving_context(tmp_path, 1e9)[1] == serving_context(tmp_path, 2e9)[1]
    assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {"0o600"}

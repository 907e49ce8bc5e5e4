"""Users by the certificate of their connection: clients of a CA, and proxies of another that speak for others.

Source: apiserver `pkg/authentication/request/{x509,headerrequest}`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote

from msgspec import Struct

from muster.apiserver.authentication.signatures import TokenError
from muster.apiserver.authentication.users import CREDENTIAL_ID
from muster.apiserver.request import ApiRequest, User

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_UNKNOWN = "x509: certificate signed by unknown authority"


class Authority:
    """The certificates of a CA. Raises ValueError if there are none."""

    def __init__(self, pem: str) -> None:
        from cryptography.x509 import load_pem_x509_certificates

        self.pem = pem
        self._certificates = load_pem_x509_certificates(pem.encode())

    def check(self, certificate: Certificate, now: float) -> None:
        """Refuse a certificate that is not of this CA, or not valid at this time. Raises `TokenError`."""
        from cryptography.exceptions import InvalidSignature

        when = datetime.fromtimestamp(now, UTC)
        if not certificate.not_valid_before_utc <= when <= certificate.not_valid_after_utc:
            raise TokenError("x509: certificate has expired or is not yet valid")
        for issuer in self._certificates:
            try:
                certificate.verify_directly_issued_by(issuer)
            except (ValueError, TypeError, InvalidSignature):
                continue
            return
        raise TokenError(_UNKNOWN)


class RequestHeaders(Struct, frozen=True):
    """By which headers a proxy says for whom it speaks (in lower case), and which proxies may."""

    username: tuple[str, ...] = ("x-remote-user",)
    group: tuple[str, ...] = ("x-remote-group",)
    uid: tuple[str, ...] = ("x-remote-uid",)
    extra_prefix: tuple[str, ...] = ("x-remote-extra-",)
    allowed_names: tuple[str, ...] = ()


class Certificates(Struct, frozen=True):
    """Whose certificates mean something. `clients` None: nobody's; `proxies` None: no proxy speaks for anybody."""

    clients: Authority | None = None
    proxies: Authority | None = None
    headers: RequestHeaders = RequestHeaders()

    def user(self, request: ApiRequest, now: float) -> tuple[User | None, list[str]]:
        """Who a request comes from by its certificate, and why it does not say who."""
        if not request.certificate:
            return None, []
        from cryptography.x509 import load_der_x509_certificate

        try:
            certificate = load_der_x509_certificate(request.certificate)
        except ValueError as error:
            return None, [str(error)]
        errors: list[str] = []
        for authority, read in ((self.proxies, self._spoken_for), (self.clients, self._client)):
            if authority is None:
                continue
            try:
                authority.check(certificate, now)
                user = read(request, certificate)
            except TokenError as error:
                errors.append(str(error))
                continue
            if user is not None:
                return user, []
        return None, errors

    def _spoken_for(self, request: ApiRequest, certificate: Certificate) -> User | None:
        headers = self.headers
        name = _names(certificate, "commonName")[:1]
        if headers.allowed_names and not set(name) & set(headers.allowed_names):
            raise TokenError(f"x509: subject with cn={''.join(name)} is not in the allowed list")
        user = _first(request, headers.username)
        if not user:
            return None
        groups = [value for header in headers.group for value in request.header_values(header)]
        extra = {
            unquote(header.removeprefix(prefix)).lower(): tuple(request.header_values(header))
            for prefix in headers.extra_prefix
            for header in request.header_names()
            if header.startswith(prefix)
        }
        return User(user, tuple(groups), _first(request, headers.uid), extra)

    def _client(self, request: ApiRequest, certificate: Certificate) -> User | None:
        name = "".join(_names(certificate, "commonName")[:1])
        if not name:
            return None
        digest = hashlib.sha256(request.certificate).hexdigest()
        groups = tuple(_names(certificate, "organizationName"))
        return User(name, groups, "", {CREDENTIAL_ID: (f"X509SHA256={digest}",)})


def _names(certificate: Certificate, kind: str) -> list[str]:
    """The values of an attribute of the subject."""
    from cryptography.x509 import NameOID

    oid = NameOID.COMMON_NAME if kind == "commonName" else NameOID.ORGANIZATION_NAME
    return [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid)]


def _first(request: ApiRequest, names: Sequence[str]) -> str:
    return next((value for name in names for value in request.header_values(name) if value), "")

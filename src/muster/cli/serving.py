"""The certificate of a server that is asked over TLS: self-signed, so that its file is also what clients trust."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

FILE = "serving.pem"
DAYS = 3650
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
ADDRESS = "127.0.0.1"
_MARK = "-----BEGIN CERTIFICATE-----"


def serving_context(data: Path | None, now: float) -> tuple[ssl.SSLContext, str]:
    """The context to serve with, and the certificate as PEM: the one kept with the data, or a new one.

    Raises OSError, ssl.SSLError and ValueError.
    """
    text = _kept(data, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory(prefix="muster-") as directory:
        path = Path(directory) / FILE
        _write(path, text)
        context.load_cert_chain(path)
    return context, text[text.index(_MARK) :]


def _kept(data: Path | None, now: float) -> str:
    if data is None:
        return make_certificate(now)
    path = data / FILE
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    text = make_certificate(now)
    _write(path, text)
    return text


def _write(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)


def make_certificate(now: float) -> str:
    """A new key and its certificate, as PEM; `now` is in seconds."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "muster")])
    begins = datetime.fromtimestamp(now, UTC) - timedelta(hours=1)
    names = [*map(x509.DNSName, NAMES), x509.IPAddress(ip_address(ADDRESS))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (private + certificate.public_bytes(Encoding.PEM)).decode()

"""How to reach an API server: address, trust, and who we are. Values; nothing here opens a connection."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from muster.api.codec import Object

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a kubelet puts a pod's token and the cluster's CA."""


class KubeconfigError(Exception):
    """A kubeconfig cannot be used; the message names the file, the field and what is wrong. Not retryable."""


class ExecPlugin(Struct, frozen=True):
    """A command that prints an ExecCredential. `cluster`: what it is told about the cluster, if it asked for that."""

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    cluster: Object | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a server. Certificates and keys are PEM texts, "" where there is none.

    `token_file` is read again and again. `proxy`: the URL of an http proxy, "" for none. `source`: where the
    credentials are said, for error messages.
    """

    server: str
    token: str = ""
    ca: str = ""
    client_certificate: str = ""
    client_key: str = ""
    insecure: bool = False
    tls_server_name: str = ""
    namespace: str = "default"
    token_file: str = ""
    username: str = ""
    password: str = ""
    proxy: str = ""
    exec_plugin: ExecPlugin | None = None
    source: str = field(default="", compare=False)

    def ssl_context(self, certificate: str = "", key: str = "") -> ssl.SSLContext | None:
        """The TLS context for https servers, None for http. Raises `KubeconfigError`.

        `certificate` and `key`: a client certificate from elsewhere, instead of the connection's own.
        """
        if not self.server.startswith("https://"):
            return None
        try:
            if self.insecure:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nobody is trusted, so no certificates are read
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            else:
                context = verifying_context(self.ca)
            pair = (certificate, key) if certificate else (self.client_certificate, self.client_key)
            if pair[0]:
                _load_certificate(context, *pair)
        except (ssl.SSLError, ValueError) as error:
            where = f"{self.source}: " if self.source else ""
            raise KubeconfigError(f"{where}certificates for {self.server}: {error}") from error
        return context


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Connection | None:
    """How a pod reaches its cluster by its service account; None outside of one. Raises `KubeconfigError`."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    token_file = folder / "token"
    if not host or not port or not token_file.exists():
        return None
    try:
        ca = (folder / "ca.crt").read_text()
        namespace = (folder / "namespace").read_text().strip() if (folder / "namespace").exists() else "default"
    except OSError as error:
        raise KubeconfigError(f"{error.filename}: cannot be read: {error.strerror}") from error
    address = f"[{host}]" if ":" in host else host
    return Connection(
        f"https://{address}:{port}",
        ca=ca,
        token_file=str(token_file),
        namespace=namespace,
        source=f"service account in {folder}",
    )


def verifying_context(ca: str) -> ssl.SSLContext:
    """A TLS context that trusts these authorities (PEM), or those of the system.

    Certificates of many clusters (EKS, older ones of kubeadm) have no key identifiers, which Python asks for from 3.13
    on, and nothing else that talks to Kubernetes does. Raises `ssl.SSLError`.
    """
    context = ssl.create_default_context(cadata=ca or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # The ssl module reads certificate chains from files only.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{certificate}\n{key}\n")
        file.flush()
        context.load_cert_chain(file.name)

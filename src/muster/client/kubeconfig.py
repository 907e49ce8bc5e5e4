"""Kubeconfig files: writing one for an embedded server, and reading how to reach a server.

Understood are the server's address, its CA, bearer tokens and client certificates.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from muster.api.codec import JSON, Object


class KubeconfigError(Exception):
    """A kubeconfig cannot be used; the message names the file and what is wrong. Not retryable."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a server. Certificates and keys are PEM texts, "" where there is none."""

    server: str
    token: str = ""
    ca: str = ""
    client_certificate: str = ""
    client_key: str = ""
    insecure: bool = False
    tls_server_name: str = ""
    namespace: str = "default"

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context for https servers, None for http. Raises `KubeconfigError`."""
        if not self.server.startswith("https://"):
            return None
        try:
            context = ssl.create_default_context(cadata=self.ca or None)
            if self.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.client_certificate:
                _load_certificate(context, self.client_certificate, self.client_key)
        except ssl.SSLError as error:
            raise KubeconfigError(f"certificates for {self.server}: {error}") from error
        return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # The ssl module reads certificate chains from files only.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{certificate}\n{key}\n")
        file.flush()
        context.load_cert_chain(file.name)


def kubeconfig(server: str, *, name: str = "muster", token: str = "", ca: str = "") -> Object:
    """A kubeconfig with one cluster, user and context, all named `name`. `ca` is a PEM text."""
    cluster: Object = {"server": server}
    if ca:
        cluster["certificate-authority-data"] = base64.b64encode(ca.encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token} if token else {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def write_kubeconfig(path: Path, config: Object) -> None:
    """Write a kubeconfig that only its owner can read; readers never see half a file. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=False)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def default_path(environment: Mapping[str, str]) -> Path:
    """The file that kubectl would read: the first of `KUBECONFIG`, else `~/.kube/config`."""
    first = next((part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part), "")
    return Path(first) if first else Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"


def read_kubeconfig(path: Path, context: str = "") -> Connection:
    """How to reach the server of a context ("": the current one). Raises `KubeconfigError`."""
    try:
        config = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeconfigError(f"{path}: {error}") from error
    if not isinstance(config, dict) or config.get("kind", "Config") != "Config":
        raise KubeconfigError(f"{path}: not a kubeconfig")
    try:
        return _connection(config, context or config.get("current-context") or "", path.parent)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise KubeconfigError(f"{path}: {error}") from error


def _connection(config: Object, context_name: str, directory: Path) -> Connection:
    context = _named(config, "contexts", "context", context_name)
    cluster = _named(config, "clusters", "cluster", context["cluster"])
    user = _named(config, "users", "user", context["user"]) if context.get("user") else {}
    return Connection(
        server=cluster["server"].rstrip("/"),
        token=user.get("token") or _file(user, "tokenFile", directory).strip(),
        ca=_pem(cluster, "certificate-authority", directory),
        client_certificate=_pem(user, "client-certificate", directory),
        client_key=_pem(user, "client-key", directory),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=cluster.get("tls-server-name") or "",
        namespace=context.get("namespace") or "default",
    )


def _named(config: Object, plural: str, singular: str, name: str) -> JSON:
    for entry in config.get(plural) or ():
        if entry.get("name") == name:
            return entry.get(singular) or {}
    raise ValueError(f"no {singular} named {name!r}")


def _pem(entry: Object, key: str, directory: Path) -> str:
    data = entry.get(f"{key}-data")
    return base64.b64decode(data, validate=True).decode() if data else _file(entry, key, directory)


def _file(entry: Object, key: str, directory: Path) -> str:
    return (directory / entry[key]).read_text() if entry.get(key) else ""

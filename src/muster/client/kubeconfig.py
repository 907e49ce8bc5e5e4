"""Kubeconfig files: writing one for an embedded server, and reading how to reach a server.

Read are all files that kubectl would read, the first that says something wins. Source of the rules: client-go
`tools/clientcmd` (loader and client config). What cannot be used is one error that names the file and the field.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from msgspec import Struct

from muster.api.codec import JSON, Object
from muster.client.connection import Connection, ExecPlugin, KubeconfigError

__all__ = [
    "Connection",
    "KubeconfigError",
    "default_path",
    "default_paths",
    "kubeconfig",
    "read_kubeconfig",
    "read_kubeconfigs",
    "write_kubeconfig",
]

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
PROXY_SCHEMES = ("http://", "https://")


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
    """Write a kubeconfig that only its owner can read; readers never see half a file. Raises OSError.

    What is no plain file (`/dev/stdout`) is written to and stays what it is; so does a link.
    """
    text = yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=False)
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def default_paths(environment: Mapping[str, str]) -> list[Path]:
    """The files that kubectl would read: those of `KUBECONFIG`, else `~/.kube/config`."""
    parts = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    if parts:
        return [Path(part) for part in dict.fromkeys(parts)]
    return [Path(environment.get("HOME", "~")).expanduser() / ".kube" / "config"]


def default_path(environment: Mapping[str, str]) -> Path:
    """The first of them."""
    return default_paths(environment)[0]


def read_kubeconfig(path: Path, context: str = "") -> Connection:
    """How to reach the server of a context ("": the current one). Raises `KubeconfigError`."""
    return _connection([_File.read(path)], context)


def read_kubeconfigs(paths: Sequence[Path], context: str = "") -> Connection:
    """The same from several files, of which some may not exist. Raises `KubeconfigError`."""
    found = [path for path in paths if path.exists()]
    return _connection([_File.read(path) for path in found or paths[:1]], context)


class _File(Struct, frozen=True):
    path: Path
    config: Object

    @classmethod
    def read(cls, path: Path) -> _File:
        try:
            config = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        except OSError as error:
            raise KubeconfigError(f"{path}: cannot be read: {error.strerror or error}") from error
        except (UnicodeDecodeError, yaml.YAMLError) as error:
            raise KubeconfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
        if not isinstance(config, dict) or config.get("kind", "Config") != "Config":
            raise KubeconfigError(f"{path}: is not a kubeconfig (kind: Config)")
        return cls(path, config)


class _Entry(Struct, frozen=True):
    """An object in a file with where it is, so that every fault can name its field."""

    file: Path
    field: str
    value: Object

    def error(self, key: str, why: str) -> KubeconfigError:
        return KubeconfigError(f"{self.file}: {self.field}.{key}: {why}")

    def text(self, key: str, default: str = "") -> str:
        value = self.value.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(key, f"must be a text, not {value!r}")
        return value

    def needed(self, key: str) -> str:
        value = self.text(key)
        if not value:
            raise self.error(key, "is missing")
        return value

    def flag(self, key: str) -> bool:
        value = self.value.get(key) or False
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {value!r}")
        return value

    def child(self, key: str) -> _Entry:
        return _Entry(self.file, f"{self.field}.{key}", _object(self.file, f"{self.field}.{key}", self.value.get(key)))

    def path(self, key: str) -> str:
        """A file named in the entry, relative to the kubeconfig."""
        name = self.text(key)
        return str(self.file.parent / name) if name else ""

    def pem(self, key: str) -> str:
        """The PEM text of `KEY-data`, or in the file that `KEY` names."""
        data = self.text(f"{key}-data")
        if data:
            try:
                return base64.b64decode(data, validate=True).decode()
            except (binascii.Error, ValueError) as error:
                raise self.error(f"{key}-data", "is not base64 of a PEM text") from error
        path = self.path(key)
        return self.content(key, path) if path else ""

    def content(self, key: str, path: str) -> str:
        try:
            return Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise self.error(key, f"{path} cannot be read: {why}") from error


def _connection(files: list[_File], context_name: str) -> Connection:
    said = (_current_context(file) for file in files)
    name = context_name or next((text for text in said if text), "")
    if not name:
        raise KubeconfigError(f"{files[0].path}: current-context: is not set; name one with --context")
    context = _named(files, "contexts", "context", name)
    cluster = _named(files, "clusters", "cluster", context.needed("cluster"))
    user_name = context.text("user")
    user = _named(files, "users", "user", user_name) if user_name else _Entry(files[0].path, "user", {})
    server = cluster.needed("server").rstrip("/")
    if not server.startswith(("http://", "https://")):
        server = f"https://{server}"
    proxy = cluster.text("proxy-url")
    if proxy and not proxy.startswith(PROXY_SCHEMES):
        raise cluster.error("proxy-url", f"{proxy!r}: only http:// and https:// proxies can be used")
    for key in ("auth-provider", "as"):
        if user.value.get(key):
            raise user.error(key, "is not supported; use exec, a token or a client certificate")
    return Connection(
        server=server,
        token=user.text("token"),
        token_file="" if user.text("token") else _token_file(user),
        ca=cluster.pem("certificate-authority"),
        client_certificate=user.pem("client-certificate"),
        client_key=user.pem("client-key"),
        insecure=cluster.flag("insecure-skip-tls-verify"),
        tls_server_name=cluster.text("tls-server-name"),
        namespace=context.text("namespace") or "default",
        username=user.text("username"),
        password=user.text("password"),
        proxy=proxy,
        exec_plugin=_exec_plugin(user, cluster) if user.value.get("exec") else None,
        source=f"{user.file}: {user.field}",
    )


def _current_context(file: _File) -> str:
    return _Entry(file.path, "", file.config).text("current-context")


def _token_file(user: _Entry) -> str:
    path = user.path("tokenFile")
    if path:
        user.content("tokenFile", path)
    return path


def _exec_plugin(user: _Entry, cluster: _Entry) -> ExecPlugin:
    plugin = user.child("exec")
    version = plugin.needed("apiVersion")
    if version not in EXEC_VERSIONS:
        raise plugin.error("apiVersion", f"{version!r}: must be {' or '.join(EXEC_VERSIONS)}")
    if plugin.text("interactiveMode") == "Always":
        raise plugin.error("interactiveMode", "Always: a scheduler has no terminal for the plugin to ask at")
    command = plugin.needed("command")
    if os.sep in command:
        command = str(plugin.file.parent / command)
    arguments = plugin.value.get("args") or []
    if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        raise plugin.error("args", "must be a list of texts")
    variables = plugin.value.get("env") or []
    if not isinstance(variables, list):
        raise plugin.error("env", "must be a list of name and value")
    pairs = [_object(plugin.file, f"{plugin.field}.env[{at}]", entry) for at, entry in enumerate(variables)]
    shown = {key: value for key, value in cluster.value.items() if key != "extensions"}
    return ExecPlugin(
        api_version=version,
        command=command,
        arguments=tuple(arguments),
        environment=tuple((str(pair.get("name", "")), str(pair.get("value", ""))) for pair in pairs),
        install_hint=plugin.text("installHint"),
        cluster=shown if plugin.flag("provideClusterInfo") else None,
    )


def _named(files: list[_File], plural: str, singular: str, name: str) -> _Entry:
    for file in files:
        entries = file.config.get(plural) or []
        if not isinstance(entries, list):
            raise KubeconfigError(f"{file.path}: {plural}: must be a list")
        for at, entry in enumerate(entries):
            field = f"{plural}[{at}]"
            if _object(file.path, field, entry).get("name") == name:
                return _Entry(file.path, f"{field}.{singular}", _object(file.path, field, entry.get(singular) or {}))
    raise KubeconfigError(f"{files[0].path}: {plural}: there is no {singular} named {name!r}")


def _object(file: Path, field: str, value: JSON) -> Object:
    if not isinstance(value, dict):
        raise KubeconfigError(f"{file}: {field}: must be an object, not {value!r}")
    return value

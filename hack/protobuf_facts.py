"""Make `src/muster/apiserver/data/messages.json.gz`: how Kubernetes' kinds are laid out as protobuf messages.

Usage: python hack/protobuf_facts.py MODULES OUTPUT
MODULES is a directory with the Go modules k8s.io/api and k8s.io/apimachinery (`go mod download`), as
`api@v0.37.2`, of the releases below. Read are the struct tags of their types: field numbers, JSON names, whether a
field is a pointer or left out when empty. Fields and messages of all releases are merged; the newest wins.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

RELEASES = ("v0.35.4", "v0.36.3", "v0.37.2")
META = "k8s.io/apimachinery/pkg/apis/meta/v1"
SPECIAL = {
    f"{META}.Time": "Time",
    f"{META}.MicroTime": "MicroTime",
    f"{META}.Duration": "Duration",
    f"{META}.FieldsV1": "FieldsV1",
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "Quantity",
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": "IntOrString",
    "k8s.io/apimachinery/pkg/runtime.RawExtension": "Raw",
}
SCALARS = {
    "string": "string",
    "bool": "bool",
    "byte": "byte",
    "float64": "double",
    **dict.fromkeys(("int", "int32", "int64", "uint32", "uint64", "uint8"), "int"),
}
NAMES_OF_OTHERS = {"k8s.io/apimachinery/pkg/types": "string"}

STRUCT = re.compile(r"^type (\w+) struct \{$(.*?)^\}", re.M | re.S)
EMPTY_STRUCT = re.compile(r"^type (\w+) struct ?\{\s*\}", re.M)
ALIAS = re.compile(r"^type (\w+) (?:= )?([\[\]\w.]+)$", re.M)
TAGGED = re.compile(r'^\t(?:\w+\s+)?([*\[\]\w.]+)\s+`json:"([^"]*)".*?protobuf:"([^"]*)"', re.M)
IMPORT = re.compile(r'^\s*(?:(\w+)\s+)?"([^"]+)"$', re.M)
GROUP = re.compile(r'GroupName\s*=\s*"([^"]*)"')


@dataclass
class Package:
    """The types of one Go package."""

    path: str
    structs: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    group: str | None = None


def read_package(directory: Path, path: str) -> Package:
    package = Package(path)
    for file in sorted(directory.glob("*.go")):
        if file.name.endswith("_test.go") or file.name.startswith(("zz_", "generated")):
            continue
        text = file.read_text()
        block = re.search(r"^import \((.*?)^\)", text, re.M | re.S)
        for name, target in IMPORT.findall(block[1] if block else ""):
            package.imports[name or target.rsplit("/", 1)[-1]] = target
        for name, body in STRUCT.findall(text):
            package.structs[name] = TAGGED.findall(body)
        package.structs |= {name: [] for name in EMPTY_STRUCT.findall(text)}
        package.aliases |= dict(ALIAS.findall(text))
        if file.name == "register.go" and (found := GROUP.search(text)):
            package.group = found[1]
    return package


class Kinds:
    """Turns Go types into the kinds of the decoder."""

    def __init__(self, packages: dict[str, Package]) -> None:
        self.packages = packages

    def kind(self, package: Package, go_type: str) -> tuple[str, str]:
        """The kind of a type, and flags: r repeated, m map, p pointer."""
        if go_type.startswith("*"):
            kind, flags = self.kind(package, go_type[1:])
            return kind, flags + "p"
        if go_type == "[]byte":
            return "bytes", ""
        if go_type.startswith("[]"):
            kind, _ = self.kind(package, go_type[2:])
            return kind, "r"
        if go_type.startswith("map["):
            kind, _ = self.kind(package, go_type.split("]", 1)[1])
            return kind, "m"
        if go_type in SCALARS:
            return SCALARS[go_type], ""
        return self._named(package, go_type)

    def _named(self, package: Package, go_type: str) -> tuple[str, str]:
        if "." in go_type:
            prefix, name = go_type.split(".")
            path = package.imports[prefix]
        else:
            path, name = package.path, go_type
        if path in NAMES_OF_OTHERS:
            return NAMES_OF_OTHERS[path], ""
        full = f"{path}.{name}"
        if full in SPECIAL:
            return SPECIAL[full], ""
        owner = self.packages[path]
        if name in owner.structs:
            return short(full), ""
        alias = owner.aliases[name]
        if alias.startswith("[]"):
            return "Strings", ""  # such a type is a message with one repeated field
        return self.kind(owner, alias)


def short(full: str) -> str:
    return full.replace(META, "meta/v1").replace("k8s.io/api/", "")


def messages(packages: dict[str, Package]) -> dict[str, dict[str, list[str]]]:
    """Message → field number → [JSON name, kind, flags]; flags also have o (omitted when empty) and n (inline)."""
    kinds = Kinds(packages)
    found: dict[str, dict[str, list[str]]] = {}
    for package in packages.values():
        for name, fields in package.structs.items():
            rows: dict[str, list[str]] = {}
            for go_type, json_tag, wire_tag in fields:
                json_name, *options = json_tag.split(",")
                kind, flags = kinds.kind(package, go_type)
                if not json_name:
                    flags += "n"
                if "omitempty" in options or "omitzero" in options:
                    flags += "o"
                rows[wire_tag.split(",")[1]] = [json_name, kind, flags]
            found[short(f"{package.path}.{name}")] = rows
    return found


def load(modules: Path, release: str) -> dict[str, Package]:
    api, machinery = modules / f"api@{release}", modules / f"apimachinery@{release}"
    packages = {META: read_package(machinery / "pkg/apis/meta/v1", META)}
    for directory in sorted(api.glob("*/*")):
        if (directory / "register.go").exists():
            path = f"k8s.io/api/{directory.relative_to(api)}"
            packages[path] = read_package(directory, path)
    return packages


def main(modules: Path, output: Path) -> None:
    merged: dict[str, dict[str, list[str]]] = {}
    groups: dict[str, str] = {}
    for release in RELEASES:
        packages = load(modules, release)
        for name, rows in messages(packages).items():
            merged[name] = {**merged.get(name, {}), **rows}
        for package in packages.values():
            if package.group is not None and package.path != META:
                version = package.path.rsplit("/", 1)[-1]
                groups[f"{package.group}/{version}" if package.group else version] = short(package.path)
    text = json.dumps({"groups": groups, "messages": merged}, separators=(",", ":"), sort_keys=True).encode()
    output.write_bytes(gzip.compress(text, compresslevel=9, mtime=0))
    sys.stdout.write(f"{len(merged)} messages, {len(text)} bytes, {output.stat().st_size} packed\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""Fields that a text gives twice, which values no longer show: of each, the last one stands."""

from __future__ import annotations

import json
from collections.abc import Iterator

import yaml
from msgspec import Struct

from muster.api.codec import JSON, dumps, loads

_MERGE = "tag:yaml.org,2002:merge"
_Base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser where there is one


class _Pairs(Struct, frozen=True):
    """An object of a JSON text with all its fields, repeated ones too."""

    pairs: list[tuple[str, JSON]]


def repeated_in_json(text: str | bytes) -> list[str]:
    """The paths of fields that a JSON text gives twice, such as `data.a`. Raises ValueError.

    Nothing is said of texts that are nested too deeply to look into.
    """

    def walk(value: JSON, path: str) -> Iterator[str]:
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for key, item in value.pairs:
                here = f"{path}.{key}" if path else key
                if key in seen:
                    yield here
                seen.add(key)
                yield from walk(item, here)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from walk(item, f"{path}[{index}]")

    if _is_as_written(text):
        return []
    try:
        return list(walk(json.loads(text, object_pairs_hook=_Pairs), ""))
    except RecursionError:
        return []


def _is_as_written(text: str | bytes) -> bool:
    """Whether the value says all that the text does: most clients write as compactly as we do, and this is quick."""
    try:
        data = text if isinstance(text, bytes) else text.encode()
        return dumps(loads(data)) == data.strip()
    except ValueError:  # there are texts that only one of the parsers takes
        return False


class YamlLoader(_Base):  # type: ignore[valid-type, misc]  # the base is chosen at run time
    """Safe loader of YAML as JSON would say it: timestamps stay texts. It notes which fields are given twice."""

    def __init__(self, stream: str | bytes) -> None:
        super().__init__(stream)
        self._repeated: dict[int, list[str]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[JSON, JSON]:
        keys = [key.value for key, _ in node.value if key.tag != _MERGE]
        mapping: dict[JSON, JSON] = super().construct_mapping(node, deep)
        if len(mapping) < len(keys):
            twice = [key for at, key in enumerate(keys) if isinstance(key, str) and key in keys[:at]]
            self._repeated[id(node)] = list(dict.fromkeys(twice))
        return mapping

    def repeated(self, node: yaml.Node) -> list[str]:
        """The paths of fields that are given twice in a document that has been constructed from this node."""
        return list(self._walk(node, "", set())) if self._repeated else []

    def _walk(self, node: yaml.Node, path: str, seen: set[int]) -> Iterator[str]:
        if id(node) in seen:  # an alias: said once is enough
            return
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key in self._repeated.get(id(node), ()):
                yield f"{path}.{key}" if path else key
            for key, item in node.value:
                yield from self._walk(item, f"{path}.{key.value}" if path else str(key.value), seen)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                yield from self._walk(item, f"{path}[{index}]", seen)


YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}

"""DeviceClasses: their selectors and configuration, and the extended resources that stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.api.codec import Object, Objects
from muster.api.meta import name_of

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClass:
    """`selectors`: CEL expressions, None for one of another kind; `config` as written."""

    name: str
    selectors: tuple[str | None, ...]
    config: Objects


@dataclass(frozen=True, slots=True, eq=False)
class ClassBook:
    """Classes by name; `explicit`: extended resource → class. The lists of classes are never changed."""

    by_name: Mapping[str, DeviceClass]
    explicit: Mapping[str, str]

    def class_of(self, resource: str) -> str | None:
        """The class that an extended resource stands for, by its own word or by the name of the resource."""
        found = self.explicit.get(resource)
        if found is not None:
            return found
        name = resource.removeprefix(IMPLICIT_PREFIX)
        return name if name != resource and name in self.by_name else None


def class_book(classes: Iterable[Object]) -> ClassBook:
    """The classes of DeviceClass objects. Of two with one extended resource the newer counts, then the lower name."""
    by_name: dict[str, DeviceClass] = {}
    explicit: dict[str, str] = {}
    by_age = sorted(classes, key=name_of, reverse=True)
    by_age.sort(key=lambda obj: obj["metadata"].get("creationTimestamp") or "")
    for obj in by_age:
        spec = obj.get("spec") or {}
        selectors = tuple((each.get("cel") or {}).get("expression") for each in spec.get("selectors") or ())
        by_name[name_of(obj)] = DeviceClass(name_of(obj), selectors, spec.get("config") or [])
        if spec.get("extendedResourceName"):
            explicit[spec["extendedResourceName"]] = name_of(obj)
    return ClassBook(by_name, explicit)

"""What table columns are made of: the column itself, durations as people read them, and cells that many kinds share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from muster.api.codec import JSON, Object
from muster.clock import parse_rfc3339

NONE = "<none>"
UNKNOWN = "<unknown>"
WIDE = 1
"""The priority of columns that only `-o wide` shows."""


class Column(Struct, frozen=True):
    """One column. `cell(object, now)` gives its value; `now` is in seconds since the Unix epoch."""

    name: str
    cell: Callable[[Object, float], JSON]
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def definition(self) -> Object:
        """As a Table describes it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def human_duration(seconds: float) -> str:
    """A duration in at most two units. Source: apimachinery `pkg/util/duration` (HumanDuration)."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(0, whole)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 2920:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def since(timestamp: str | None, now: float) -> str:
    """How long ago a timestamp was, or `<unknown>`."""
    return human_duration(now - parse_rfc3339(timestamp)) if timestamp else UNKNOWN


def get(obj: JSON, *path: str) -> JSON:
    """The value at a path of fields, None where one is missing."""
    for name in path:
        if not obj:
            return None
        obj = obj.get(name)
    return obj


def at(*path: str, default: JSON = NONE) -> Callable[[Object, float], JSON]:
    """A cell that shows one field."""

    def cell(obj: Object, now: float) -> JSON:
        value = get(obj, *path)
        return default if value in (None, "") else value

    return cell


def number(*path: str) -> Callable[[Object, float], JSON]:
    """A cell that shows a number, 0 where it is missing."""
    return at(*path, default=0)


def labels_text(labels: dict[str, str] | None) -> str:
    """Labels as `a=b,c=d` in key order, `<none>` if there are none."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector_text(selector: JSON) -> str:
    """A label selector as people write it. Source: apimachinery `FormatLabelSelector`."""
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())] if selector else []
    for term in (selector or {}).get("matchExpressions") or ():
        key, values = term["key"], ",".join(sorted(term.get("values") or ()))
        terms.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }.get(term["operator"], key)
        )
    return ",".join(terms) or NONE


def container_names(containers: Iterable[Object] | None) -> str:
    return ",".join(container.get("name", "") for container in containers or ())


def container_images(containers: Iterable[Object] | None) -> str:
    return ",".join(container.get("image", "") for container in containers or ())


NAME = Column("Name", lambda obj, now: get(obj, "metadata", "name") or "", format="name")
AGE = Column("Age", lambda obj, now: since(get(obj, "metadata", "creationTimestamp"), now))
CREATED_AT = Column("Created At", lambda obj, now: get(obj, "metadata", "creationTimestamp") or "")

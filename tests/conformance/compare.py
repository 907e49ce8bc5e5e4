"""Compare a state with the recorded one, path by path, and leave out what the recording marks as varying."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from outcome import Difference

from muster.api.codec import JSON, Object


def differences(step: int, want: Object, got: Object, varying: frozenset[str]) -> list[Difference]:
    """The differences of step `step` (from 1) between two states without those at varying paths."""
    found: list[Difference] = []
    for kind in sorted({*want, *got} - {"timing"}):
        compare = _events if kind == "events" else _objects
        found += compare(kind, want.get(kind) or [], got.get(kind) or [])
    return [
        Difference(f"step {step}: {difference.path}", difference.want, difference.got)
        for difference in found
        if not _varies(f"step {step}: {difference.path}", varying)
    ]


def _varies(path: str, varying: frozenset[str]) -> bool:
    """Whether the path or one that it lies in is varying; `x[]` stands for everything in the list `x`."""
    if path in varying or f"{path}[]" in varying:
        return True
    return any(
        path.startswith((entry + ".", entry + "["))
        or (entry.endswith("[]") and re.match(re.escape(entry[:-1]) + r"[^\]]*\]", path) is not None)
        for entry in varying
    )


def _objects(kind: str, want: Sequence[Object], got: Sequence[Object]) -> Iterator[Difference]:
    names, ours = [obj["name"] for obj in want], [obj["name"] for obj in got]
    if sorted(names) == sorted(ours):
        by_name = {obj["name"]: obj for obj in got}
        pairs: Iterable[tuple[Object, Object]] = ((obj, by_name[obj["name"]]) for obj in want)
    elif len(want) == len(got):
        pairs = zip(want, got, strict=True)
    else:
        yield Difference(f"{kind}[]", names, ours)
        pairs = [(obj, other) for obj in want for other in got if other["name"] == obj["name"]]
    for obj, other in pairs:
        yield from value_differences(f"{kind}[{obj['name']}]", obj, other)


def value_differences(path: str, want: JSON, got: JSON) -> Iterator[Difference]:
    """Where two values differ, each with its path."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted({*want, *got}):
            yield from value_differences(f"{path}.{key}", want.get(key), got.get(key))
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for index, (one, other) in enumerate(zip(want, got, strict=True)):
            yield from value_differences(f"{path}[{index}]", one, other)
    elif want != got:
        yield Difference(path, want, got)


def _events(kind: str, want: Sequence[Object], got: Sequence[Object]) -> Iterator[Difference]:
    """Events are compared by object: as many of each type and reason, then their messages."""
    names = sorted({event["name"] for event in (*want, *got)})
    for name in names:
        recorded = sorted(_event_text(event) for event in want if event["name"] == name)
        ours = sorted(_event_text(event) for event in got if event["name"] == name)
        if [text[:-1] for text in recorded] != [text[:-1] for text in ours]:
            yield Difference(f"{kind}[{name}]", recorded, ours)
        elif recorded != ours:
            yield Difference(f"{kind}[{name}].message", recorded, ours)


def _event_text(event: Object) -> tuple[str, ...]:
    return (event["kind"], event["type"], event["reason"], event["message"])

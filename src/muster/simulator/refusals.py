"""What could not be made: owners whose pods or groups the API server refuses, by the events about them. Pure.

Controllers say so in an event (`FailedCreate`, `FailedWorkloadCreate`) and try again; the refusal stands until they say
that they have made one.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.api.codec import Object, Objects

_MADE = ("SuccessfulCreate", "WorkloadCreated", "PodGroupCreated", "Completed")


def standing_refusals(events: Iterable[Object]) -> Objects:
    """The last refusal of each object that none of its later events takes back, in order of the objects' first.

    `events`: as in the report of a simulation, in order of time.
    """
    last: dict[tuple[str, str, str], Object | None] = {}
    for event in events:
        key = (event["kind"], event["namespace"], event["name"])
        if is_refusal(event):
            last[key] = event
        elif event["reason"] in _MADE and key in last:
            last[key] = None
    return [event for event in last.values() if event is not None]


def is_refusal(event: Object) -> bool:
    """Whether an event says that something could not be created."""
    reason = event["reason"]
    return bool(event["type"] == "Warning" and reason.startswith("Failed") and "Create" in reason)

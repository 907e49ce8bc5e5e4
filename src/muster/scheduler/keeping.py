"""Gangs that stay together: how long one that was whole may run with too few members before all of it is evicted.

The annotation `scheduling.muster-k8s.dev/keep-together` says it, as a duration; without, a gang that loses members runs
on, as upstream has it (workload-api.md 8.75). It is looked up on the PodGroup, then on its Workload (a duration, or a
map of them by template name), then on the Job that owns it, then on its pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from muster.api.codec import Object, loads
from muster.api.durations import parse_duration
from muster.api.meta import controller_of, name_of
from muster.scheduler.cache import SchedulerCache
from muster.scheduler.group_book import KEEP_TOGETHER_KEY
from muster.scheduler.layouts import template_name, workload_key
from muster.scheduler.members import Members


class KeepError(ValueError):
    """An annotation that says no duration; the message names its place. Not retryable."""


def keep_together_s(cache: SchedulerCache, members: Members) -> float | None:
    """The time of a group in seconds; None: it is not to be kept together. Raises KeepError."""
    for where, text, template in _places(cache, members):
        try:
            found = _parsed(text, template)
        except ValueError as error:
            raise KeepError(f"annotation {KEEP_TOGETHER_KEY} of {where}: {error}") from error
        if found is not None:
            return None if found < 0 else found
    return None


def _places(cache: SchedulerCache, members: Members) -> Iterator[tuple[str, str, str | None]]:
    """Where it may be, in words; what it says there; for a map, whose entry counts."""
    ref = members.ref
    group = cache.pod_groups.get(ref.object_key) if ref.is_pod_group else None
    if (text := _annotation(group)) is not None:
        yield f"PodGroup {ref.key}", text, None
    workload = cache.workloads.get(workload_key(ref, group))
    if workload is not None and (text := _annotation(workload)) is not None:
        yield f"Workload {ref.namespace}/{name_of(workload)}", text, template_name(ref, group)
    pod = next((record.pod for record in members.live()), None)
    for owned in (group, pod):
        owner = None if owned is None else controller_of(owned)
        if owner is not None and (text := cache.kept_jobs.get(owner.get("uid", ""))) is not None:
            yield f"Job {ref.namespace}/{owner.get('name')}", text, None
    if pod is not None and (text := _annotation(pod)) is not None:
        yield f"pod {ref.namespace}/{name_of(pod)}", text, None


@lru_cache(maxsize=1024)
def _parsed(text: str, template: str | None) -> float | None:
    """The seconds; negative: switched off; None: nothing is said about the template."""
    if template is not None and text.lstrip().startswith("{"):
        found = loads(text)
        if template not in found:
            return None
        text = str(found[template])
    return -1.0 if text.strip() in ("off", "") else parse_duration(text)


def _annotation(obj: Object | None) -> str | None:
    text = None if obj is None else (obj["metadata"].get("annotations") or {}).get(KEEP_TOGETHER_KEY)
    return None if text is None else str(text)

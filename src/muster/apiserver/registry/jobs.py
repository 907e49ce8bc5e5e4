"""Jobs: defaults, generated labels and selector.

Sources: upstream `pkg/apis/batch/v1/defaults.go`, `pkg/registry/batch/job`.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.codec import Object
from muster.api.meta import controller_of, name_of, uid_of
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden
from muster.apiserver.fields import FieldError, validate_labels
from muster.apiserver.registry import job_rules
from muster.apiserver.registry.pods import default_pod_spec
from muster.apiserver.registry.strategy import Strategy

UNLIMITED = 2_147_483_647


class JobStrategy(Strategy):
    """batch/v1 Job."""

    has_status = True
    counts_generation = True
    garbage_policy = "orphan"
    selectable_names = frozenset(("status.successful",))

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("completions") is None and spec.get("parallelism") is None:
            spec["completions"] = 1
        if spec.get("parallelism") is None:
            spec["parallelism"] = 1
        if spec.get("backoffLimit") is None:
            spec["backoffLimit"] = UNLIMITED if spec.get("backoffLimitPerIndex") is not None else 6
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        if not spec.get("podReplacementPolicy"):
            rule = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
            spec["podReplacementPolicy"] = rule
        for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
            for pattern in rule.get("onPodConditions") or ():
                pattern.setdefault("status", "True")
        template = spec.setdefault("template", {})
        default_pod_spec(template.setdefault("spec", {}))

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {}
        if not obj["spec"].get("manualSelector"):
            self._generate_selector(obj)
        _default_labels(obj)

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        _default_labels(new)

    def _generate_selector(self, obj: Object) -> None:
        spec, meta = obj["spec"], obj["metadata"]
        uid, name = meta["uid"], meta.get("name", "")
        added = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        template_meta = dict(spec["template"].get("metadata") or {})
        template_meta["labels"] = {**(template_meta.get("labels") or {}), **added}
        spec["template"]["metadata"] = template_meta
        selector = dict(spec.get("selector") or {})
        key = "batch.kubernetes.io/controller-uid"
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), key: uid}
        spec["selector"] = selector

    def admit_update(self, new: Object, old: Object, ctx: Context) -> None:
        if ctx.options.job_groups != "1.36" or new["spec"].get("parallelism") == old["spec"].get("parallelism"):
            return
        group = _gang_of(old, ctx)
        if group is not None:
            why = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{group}"'
            raise forbidden(Qualified("batch", "jobs"), old["metadata"]["name"], why)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        return job_rules.problems(obj)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        return job_rules.update_problems(new, old)

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded") or 0)}


def _default_labels(job: Object) -> None:
    """A Job without labels shows those of its template, the generated ones included (if they are valid labels)."""
    labels = (job["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not job["metadata"].get("labels") and not validate_labels(labels, ""):
        job["metadata"]["labels"] = dict(labels)


def _gang_of(job: Object, ctx: Context) -> str | None:
    """The gang that the Job's template names or that the Job controls (upstream's admission plugin JobValidation)."""
    namespace = job["metadata"]["namespace"]
    named = (job["spec"]["template"]["spec"].get("schedulingGroup") or {}).get("podGroupName")
    for group in ctx.store.list(f"/podgroups/{namespace}/").items:
        is_gang = (group["spec"].get("schedulingPolicy") or {}).get("gang") is not None
        owner = controller_of(group) or {}
        if is_gang and (name_of(group) == named or owner.get("uid") == uid_of(job)):
            return name_of(group)
    return None

"""Jobs: defaults, generated labels and selector, validation.

Sources: upstream `pkg/apis/batch/v1/defaults.go`, `pkg/apis/batch/validation`, `pkg/registry/batch/job`, recordings.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.api.codec import JSON, Object
from muster.api.selectors import label_selector
from muster.apiserver.context import Context
from muster.apiserver.errors import Qualified, forbidden
from muster.apiserver.fields import (
    LONGEST_LABEL,
    FieldError,
    domain_path_errors,
    invalid_value,
    label_problems,
    not_supported,
    required,
    too_long,
    validate_labels,
)
from muster.apiserver.registry.jobpolicies import validate_failure_policy, validate_success_policy
from muster.apiserver.registry.jobscheduling import drop_disabled, validate_scheduling, validate_scheduling_update
from muster.apiserver.registry.placement import shown_selector, validate_label_selector
from muster.apiserver.registry.poddefaults import default_pod_spec
from muster.apiserver.registry.podspec import validate_pod_spec
from muster.apiserver.registry.strategy import Strategy

UNLIMITED = 2_147_483_647
MOST_INDEXED = 100_000
MOST_FAILED = 10_000
_JOBS = Qualified("batch", "jobs")
_UID_LABEL = "batch.kubernetes.io/controller-uid"
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_FIXED = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")


class JobStrategy(Strategy):
    """batch/v1 Job."""

    has_status = True
    counts_generation = True
    garbage_policy = "orphan"
    selectable_names = frozenset(("status.successful",))

    def default(self, obj: Object, ctx: Context) -> None:
        spec = obj.get("spec")
        if spec is None:
            spec = obj["spec"] = {}
        default_job_spec(spec)
        _copy_labels(obj)

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        obj["status"] = {}
        drop_disabled(obj["spec"], None, ctx)
        template = obj["spec"]["template"].get("metadata") or {}
        copied = template.get("labels") is obj["metadata"].get("labels")
        if not obj["spec"].get("manualSelector"):
            generate_selector(obj)
        if copied:
            # As upstream both share one map, so the Job gets the generated labels too.
            obj["metadata"].pop("labels", None)
        _copy_labels(obj)

    def prepare_update(self, new: Object, old: Object, ctx: Context) -> None:
        drop_disabled(new["spec"], old["spec"], ctx)

    def validate(self, obj: Object, ctx: Context) -> list[FieldError]:
        return _validate_generated(obj) + validate_job_spec(obj["spec"], "spec") + _validate_hostnames(obj)

    def validate_update(self, new: Object, old: Object, ctx: Context) -> list[FieldError]:
        spec, before = new["spec"], old["spec"]
        if spec == before:
            return []
        # Upstream checks the Job as a whole, and its spec once more for the change.
        errors = _validate_generated(new) + validate_job_spec(spec, "spec") * 2
        errors += _validate_completions_update(spec, before)
        if spec.get("selector") != before.get("selector"):
            errors.append(invalid_value("spec.selector", shown_selector(spec.get("selector")), "field is immutable"))
        if not _same_template(spec["template"], before["template"], old):
            errors.append(_template_changed(spec["template"], old))
        for field in _FIXED:
            if spec.get(field) != before.get(field):
                errors.append(invalid_value(f"spec.{field}", spec.get(field), "field is immutable"))
        return errors + validate_scheduling_update(spec, before, "spec.scheduling")

    def review_update(self, new: Object, old: Object, ctx: Context) -> None:
        if ctx.options.job_group_rules != "1.36" or new["spec"].get("parallelism") == old["spec"].get("parallelism"):
            return
        group = _gang_of(old, ctx)
        if group is not None:
            why = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{group}"'
            raise forbidden(_JOBS, old["metadata"]["name"], why)

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded") or 0)}


def default_job_spec(spec: Object) -> None:
    """Fill in a Job spec's default values, also inside a CronJob."""
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = UNLIMITED if spec.get("backoffLimitPerIndex") is not None else 6
    if spec.get("completionMode") is None:
        spec["completionMode"] = "NonIndexed"
    for field in ("suspend", "manualSelector"):
        if spec.get(field) is None:
            spec[field] = False
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed"
    default_conditions(spec)
    template = spec.get("template")
    if template is None:
        template = spec["template"] = {}
    if template.get("spec") is None:
        template["spec"] = {}
    default_pod_spec(template["spec"])


def default_conditions(spec: Object) -> None:
    """Conditions of a failure policy are to be true where nothing is said."""
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def _copy_labels(obj: Object) -> None:
    """A Job without labels gets those of its pods; if they are wrong, only the template is blamed."""
    labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not obj["metadata"].get("labels") and not validate_labels(labels, ""):
        obj["metadata"]["labels"] = labels


def generate_selector(obj: Object) -> None:
    """The labels by which a Job's pods are known, and the selector for them."""
    spec, meta = obj["spec"], obj["metadata"]
    uid, name = meta["uid"], meta.get("name") or ""
    added = {_UID_LABEL: uid, "batch.kubernetes.io/job-name": name, "controller-uid": uid, "job-name": name}
    template_meta = dict(spec["template"].get("metadata") or {})
    template_meta["labels"] = {**(template_meta.get("labels") or {}), **added}
    spec["template"]["metadata"] = template_meta
    selector = dict(spec.get("selector") or {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), _UID_LABEL: uid}
    spec["selector"] = selector


def _validate_generated(obj: Object) -> list[FieldError]:
    """The labels and the selector that the server gave must still be there."""
    spec, meta = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return []
    selector: Object | None = spec.get("selector")
    if selector is None:
        return []
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    uid, name = meta.get("uid") or "", meta.get("name") or ""
    wanted = {"controller-uid": uid, "job-name": name, _UID_LABEL: uid, "batch.kubernetes.io/job-name": name}
    errors: list[FieldError] = []
    for key, value in wanted.items():
        at, why = f"spec.template.metadata.labels[{key}]", f"must be '{value}'"
        if key not in labels:
            errors.append(required(at, why))
        elif labels[key] != value:
            errors.append(invalid_value(at, labels[key], why))
    expected = {"matchLabels": {_UID_LABEL: uid}}
    if selector != expected and not validate_label_selector(selector, ""):
        errors.append(invalid_value("spec.selector", shown_selector(selector), "`selector` not auto-generated"))
    return errors


def _validate_hostnames(obj: Object) -> list[FieldError]:
    """Pods of an Indexed Job are named after it and their index, so that must be a label."""
    spec, name = obj["spec"], obj["metadata"].get("name") or ""
    completions = spec.get("completions") or 0
    longest = f"{name}-{completions - 1}"
    if spec.get("completionMode") != "Indexed" or completions <= 0 or not label_problems(longest):
        return []
    return [invalid_value("metadata.name", name, f"will not able to create pod with invalid DNS label: {longest}")]


def validate_job_spec(spec: Object, field: str, *, is_template: bool = False) -> list[FieldError]:
    """Everything about a Job spec that does not depend on its past. `is_template`: it has no selector yet."""
    errors = [
        invalid_value(f"{field}.{name}", spec[name], "must be greater than or equal to 0")
        for name in _COUNTS
        if spec.get(name) is not None and spec[name] < 0
    ]
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(required(f"{field}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    errors += _validate_mode(spec, field) + _validate_managed_by(spec, field)
    errors += validate_failure_policy(spec, f"{field}.podFailurePolicy")
    errors += validate_success_policy(spec, f"{field}.successPolicy")
    errors += _validate_replacement(spec, field)
    errors += validate_scheduling(spec, f"{field}.scheduling")
    template = spec.get("template") or {}
    at = f"{field}.template.spec"
    errors += _without_restart(validate_pod_spec(template.get("spec") or {}, at), at)
    errors += _validate_restart(spec, template.get("spec") or {}, f"{at}.restartPolicy")
    labels = (template.get("metadata") or {}).get("labels") or {}
    errors += validate_labels(labels, f"{field}.template.labels")
    return errors if is_template else errors + _validate_selector(spec, field, labels)


def validate_job_template(spec: Object, field: str) -> list[FieldError]:
    """A Job spec inside of a CronJob: it has no defaults yet, and its selector will be made."""
    filled = {**spec, "completionMode": spec.get("completionMode", "NonIndexed")}
    if spec.get("podReplacementPolicy") is None:
        filled["podReplacementPolicy"] = "Failed"
    errors = validate_job_spec(filled, field, is_template=True)
    if spec.get("selector") is not None:
        why = "`selector` will be auto-generated"
        errors.append(invalid_value(f"{field}.selector", shown_selector(spec["selector"]), why))
    if spec.get("manualSelector"):
        errors.append(not_supported(f"{field}.manualSelector", True, ("nil", "false")))
    return errors


def _validate_selector(spec: Object, field: str, labels: Object) -> list[FieldError]:
    """A selector is needed, and must match the pods."""
    selector = spec.get("selector")
    problems = validate_label_selector(selector, f"{field}.selector")
    errors = [required(f"{field}.selector")] if selector is None else problems
    if selector is None or (not problems and not label_selector(selector).matches(labels)):
        why = "`selector` does not match template `labels`"
        errors.append(invalid_value(f"{field}.template.metadata.labels", labels or None, why))
    return errors


def _without_restart(errors: list[FieldError], at: str) -> list[FieldError]:
    """Jobs say more exactly than pods that there must be a restart policy."""
    return [error for error in errors if error.field != f"{at}.restartPolicy" or '""' not in error.body]


def _validate_mode(spec: Object, field: str) -> list[FieldError]:
    errors: list[FieldError] = []
    mode = spec.get("completionMode")
    if mode not in ("NonIndexed", "Indexed"):
        errors.append(not_supported(f"{field}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        errors += _validate_indexed(spec, field)
    if mode == "NonIndexed":
        errors += [
            invalid_value(f"{field}.{name}", spec[name], "requires indexed completion mode")
            for name in ("backoffLimitPerIndex", "maxFailedIndexes")
            if spec.get(name) is not None
        ]
    return errors


def _validate_indexed(spec: Object, field: str) -> list[FieldError]:
    """The bounds of an Indexed Job, which keep its status small."""
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    failed, per_index = spec.get("maxFailedIndexes"), spec.get("backoffLimitPerIndex")
    if completions is None:
        return [required(f"{field}.completions", "when completion mode is Indexed")]
    errors: list[FieldError] = []
    most = f"must be less than or equal to {MOST_INDEXED}"
    if parallelism > MOST_INDEXED:
        errors.append(invalid_value(f"{field}.parallelism", parallelism, f"{most} when completion mode is Indexed"))
    if failed is not None and failed > completions:
        errors.append(invalid_value(f"{field}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    if failed is not None and failed > MOST_INDEXED:
        errors.append(invalid_value(f"{field}.maxFailedIndexes", failed, most))
    if completions > MOST_INDEXED and per_index is not None:
        if failed is None:
            why = f"must be specified when completions is above {MOST_INDEXED}"
            return [*errors, required(f"{field}.maxFailedIndexes", why)]
        why = (
            f"must be less than or equal to {MOST_FAILED} when completions are above {MOST_INDEXED} and used with "
            "backoff limit per index"
        )
        if parallelism > MOST_FAILED:
            errors.append(invalid_value(f"{field}.parallelism", parallelism, why))
        if failed > MOST_FAILED:
            errors.append(invalid_value(f"{field}.maxFailedIndexes", failed, why))
    return errors


def _validate_managed_by(spec: Object, field: str) -> list[FieldError]:
    name = spec.get("managedBy")
    if name is None:
        return []
    at = f"{field}.managedBy"
    errors = domain_path_errors(name, at)
    return errors + ([too_long(at, LONGEST_LABEL)] if len(name) > LONGEST_LABEL else [])


def _validate_replacement(spec: Object, field: str) -> list[FieldError]:
    policy = spec.get("podReplacementPolicy")
    choices = ("Failed",) if spec.get("podFailurePolicy") else ("Failed", "TerminatingOrFailed")
    return [] if policy in choices else [not_supported(f"{field}.podReplacementPolicy", policy, choices)]


def _validate_restart(spec: Object, pod_spec: Object, at: str) -> list[FieldError]:
    policy = pod_spec.get("restartPolicy")
    if policy in (None, "", "Always"):
        return [required(at, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [not_supported(at, policy, ("OnFailure", "Never"))]
    if spec.get("podFailurePolicy") is not None and policy != "Never":
        return [invalid_value(at, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def _validate_completions_update(spec: Object, before: Object) -> list[FieldError]:
    new, old = spec.get("completions"), before.get("completions")
    at = "spec.completions"
    if new == old:
        return []
    if spec.get("completionMode") != "Indexed" or new is None or old is None:
        return [invalid_value(at, new, "field is immutable")]
    if new != spec.get("parallelism") or old != before.get("parallelism"):
        return [invalid_value(at, new, "can only be modified in tandem with spec.parallelism")]
    return []


def _same_template(new: Object, old: Object, job: Object) -> bool:
    """Whether the template is unchanged but for what may change while the Job is suspended."""
    return new == old or (_is_open(job) and _scheduling_removed(new) == _scheduling_removed(old))


def _is_open(job: Object) -> bool:
    """Whether the Job is suspended, so that a part of its template may change."""
    return bool(job["spec"].get("suspend")) and not (job.get("status") or {}).get("active")


def _template_changed(new: Object, job: Object) -> FieldError:
    """The error about a change that may not be; while a part may change, the pods' spec is blamed."""
    at, value = ("spec.template.spec", new["spec"]) if _is_open(job) else ("spec.template", new)
    return invalid_value(at, value, "field is immutable")


def _scheduling_removed(template: Object) -> Object:
    """The template without the parts that say where and with how much its pods run."""
    meta = {
        key: value for key, value in (template.get("metadata") or {}).items() if key not in ("labels", "annotations")
    }
    removed = ("nodeSelector", "tolerations", "schedulingGates")
    spec: dict[str, JSON] = {key: value for key, value in template["spec"].items() if key not in removed}
    affinity = {key: value for key, value in (spec.pop("affinity", None) or {}).items() if key != "nodeAffinity"}
    if affinity:
        spec["affinity"] = affinity
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [{**container, "resources": {}} for container in spec[field]]
    return {**template, "metadata": meta, "spec": spec}


def _gang_of(job: Object, ctx: Context) -> str | None:
    """The name of the gang PodGroup that this Job controls, if there is one."""
    uid = job["metadata"].get("uid")
    page = ctx.store.list(f"/podgroups/{job['metadata']['namespace']}/")
    for group in page.items:
        owners = group["metadata"].get("ownerReferences") or ()
        owned = any(owner.get("controller") and owner.get("uid") == uid for owner in owners)
        if owned and (group["spec"].get("schedulingPolicy") or {}).get("gang") is not None:
            name: str = group["metadata"]["name"]
            return name
    return None

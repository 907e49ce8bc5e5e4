"""Validation of pod specs, in pods and in templates, and what may change in a pod.

Source: upstream `pkg/apis/core/validation` (ValidatePodSpec, ValidatePodUpdate) and recordings.
"""

from __future__ import annotations

from typing import TypeAlias

from muster.api.codec import JSON, Object, Objects
from muster.apiserver.fields import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    label_problems,
    not_supported,
    qualified_name_problems,
    required,
    subdomain_problems,
)
from muster.apiserver.registry.containers import validate_containers, validate_pod_resources
from muster.apiserver.registry.placement import (
    REQUIRED,
    validate_affinity,
    validate_node_selector,
    validate_spread,
    validate_tolerations,
)
from muster.apiserver.registry.podnetwork import validate_network
from muster.apiserver.registry.probes import NON_NEGATIVE
from muster.apiserver.registry.security import validate_pod_security
from muster.apiserver.registry.volumes import validate_volumes

Errors: TypeAlias = list[FieldError]

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
MAX_SECONDS = 2_147_483_647


def validate_pod_spec(spec: Object, field: str = "spec") -> Errors:
    """Everything that upstream checks of a pod spec and that a scheduler, a node or a person can meet here."""
    volumes: set[str] = set()
    errors = validate_volumes(spec, field, volumes)
    errors += _validate_claims(spec.get("resourceClaims") or [], f"{field}.resourceClaims")
    errors += validate_containers(spec, field, volumes)
    errors += _validate_choice(spec.get("restartPolicy"), f"{field}.restartPolicy", _RESTART)
    errors += _validate_choice(spec.get("dnsPolicy"), f"{field}.dnsPolicy", _DNS)
    errors += validate_node_selector(spec, field)
    errors += validate_affinity(spec.get("affinity"), f"{field}.affinity")
    errors += _validate_gates(spec.get("schedulingGates") or [], f"{field}.schedulingGates")
    errors += validate_spread(spec.get("topologySpreadConstraints"), f"{field}.topologySpreadConstraints")
    if spec.get("securityContext"):
        errors += validate_pod_security(spec["securityContext"], f"{field}.securityContext")
    errors += validate_pod_resources(spec, field) + validate_network(spec, field) + _validate_os(spec, field)
    for name in ("serviceAccountName", "nodeName", "runtimeClassName"):
        errors += _validate_name(spec.get(name), f"{field}.{name}", subdomain=True)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_SECONDS:
        why = f"must be between 1 and {MAX_SECONDS}, inclusive"
        errors.append(invalid_value(f"{field}.activeDeadlineSeconds", deadline, why))
    override = spec.get("hostnameOverride")
    if override is not None:
        errors += [invalid_value(f"{field}.hostnameOverride", override, text) for text in subdomain_problems(override)]
    for name in ("hostname", "subdomain"):
        errors += _validate_name(spec.get(name), f"{field}.{name}", subdomain=False)
    errors += validate_tolerations(spec.get("tolerations"), f"{field}.tolerations")
    errors += _validate_name(spec.get("priorityClassName"), f"{field}.priorityClassName", subdomain=True)
    policy = spec.get("preemptionPolicy")
    if policy not in (None, "PreemptLowerPriority", "Never"):
        errors.append(not_supported(f"{field}.preemptionPolicy", policy, ("PreemptLowerPriority", "Never")))
    return errors + validate_group_link(spec, field)


def _validate_os(spec: Object, field: str) -> Errors:
    system = spec.get("os")
    if system is None:
        return []
    name = system.get("name") or ""
    if not name:
        return [required(f"{field}.os.name")]
    return [] if name in ("linux", "windows") else [not_supported(f"{field}.os", name, ("linux", "windows"))]


def _validate_choice(value: JSON, field: str, choices: tuple[str, ...]) -> Errors:
    return [] if value in choices else [not_supported(field, value or "", choices)]


def _validate_name(value: JSON, field: str, *, subdomain: bool) -> Errors:
    if not value:
        return []
    problems = subdomain_problems(value) if subdomain else label_problems(value, "characters")
    return [invalid_value(field, value, problem) for problem in problems]


def _validate_claims(claims: Objects, field: str) -> Errors:
    errors: Errors = []
    names: set[str] = set()
    for index, claim in enumerate(claims):
        at = f"{field}[{index}]"
        name = claim.get("name") or ""
        if not name:
            errors.append(required(f"{at}.name"))
        elif name in names:
            errors.append(duplicate(f"{at}.name", name))
        else:
            errors += [invalid_value(f"{at}.name", name, text) for text in label_problems(name, "characters")]
        names.add(name)
        for source in ("resourceClaimName", "resourceClaimTemplateName"):
            named = claim.get(source)
            if named is not None:
                errors += [invalid_value(f"{at}.{source}", named, text) for text in subdomain_problems(named)]
        given = [
            source for source in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(source) is not None
        ]
        if not given:
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid_value(at, _claim_shown(claim), why))
        elif len(given) > 1:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(invalid_value(at, _claim_shown(claim), why))
    return errors


def _claim_shown(claim: Object) -> Object:
    names = {
        "Name": "name",
        "ResourceClaimName": "resourceClaimName",
        "ResourceClaimTemplateName": "resourceClaimTemplateName",
    }
    return {shown: claim.get(name) for shown, name in names.items()}


def _validate_gates(gates: Objects, field: str) -> Errors:
    errors: Errors = []
    names: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        problems = qualified_name_problems(name)
        errors += [invalid_value(f"{field}[{index}]", name, problem) for problem in problems]
        if name in names:
            errors.append(duplicate(f"{field}[{index}]", name))
        names.add(name)
    return errors


def validate_group_link(spec: Object, field: str = "spec") -> Errors:
    """The link to a group: `schedulingGroup` (1.36 and later), `workloadRef` (1.35)."""
    errors: Errors = []
    group, first = spec.get("schedulingGroup"), spec.get("workloadRef")
    if group is not None:
        at, name = f"{field}.schedulingGroup.podGroupName", group.get("podGroupName")
        if name is None:
            errors.append(invalid_value(at, None, "must specify one of: `podGroupName`"))
        else:
            errors += [invalid_value(at, name, problem) for problem in subdomain_problems(name)]
    if first is not None:
        at = f"{field}.workloadRef"
        name, template, key = first.get("name") or "", first.get("podGroup") or "", first.get("podGroupReplicaKey")
        errors += [invalid_value(f"{at}.name", name, problem) for problem in subdomain_problems(name)]
        errors += [invalid_value(f"{at}.podGroup", template, problem) for problem in label_problems(template)]
        if key:
            errors += [invalid_value(f"{at}.podGroupReplicaKey", key, problem) for problem in label_problems(key)]
    return errors


def validate_pod_names(spec: Object, field: str = "spec") -> Errors:
    """The fields in which pods of one template differ: node and host name, and whether a gate forbids the node."""
    errors = _validate_name(spec.get("nodeName"), f"{field}.nodeName", subdomain=True)
    errors += _validate_name(spec.get("hostname"), f"{field}.hostname", subdomain=False)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        errors.append(forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return errors


def validate_new_pod(pod: Object) -> Errors:
    """What holds for pods beyond their spec."""
    spec = pod["spec"]
    errors = validate_pod_spec(spec)
    if spec.get("ephemeralContainers"):
        errors.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        errors.append(forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return errors


_FREE_FIELDS = ("containers", "initContainers", "tolerations", "activeDeadlineSeconds", "schedulingGates")
_CONTAINERS = ("containers", "initContainers")
_FIXED_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod_update(new: Object, old: Object) -> Errors:
    """What an update of a pod's main resource may not do."""
    spec, before = new["spec"], old["spec"]
    if spec == before:
        return []
    errors = validate_pod_spec(spec)
    for field in _CONTAINERS:
        containers = spec.get(field) or []
        if len(containers) != len(before.get(field) or []):
            return [*errors, forbidden_field(f"spec.{field}", "pod updates may not add or remove containers")]
        errors += [
            required(f"spec.{field}[{index}].image")
            for index, container in enumerate(containers)
            if not (container.get("image") or "").strip()
        ]
    errors += _validate_deadline_update(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    errors += _validate_tolerations_update(spec.get("tolerations") or [], before.get("tolerations") or [])
    errors += _validate_gates_update(spec, before)
    compared = dict(spec)
    if before.get("schedulingGates"):
        errors += _validate_gated(compared, spec, before)
    rest = (compared.keys() | before.keys()) - set(_FREE_FIELDS)
    is_same = all(_same_but_images(spec.get(field) or [], before.get(field) or []) for field in _CONTAINERS)
    if not is_same or any(compared.get(field) != before.get(field) for field in rest):
        errors.append(forbidden_field("spec", _FIXED_TEXT))
    return errors


def _validate_gates_update(spec: Object, before: Object) -> Errors:
    known = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    return [
        forbidden_field(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name') or ''}'",
        )
        for index, gate in enumerate(spec.get("schedulingGates") or ())
        if gate.get("name") not in known
    ]


def _validate_tolerations_update(new: Objects, old: Objects) -> Errors:
    problems = validate_tolerations(new, "spec.tolerations") if new != old else []
    remaining = [{key: value for key, value in entry.items() if key != "tolerationSeconds"} for entry in new]
    for toleration in old:
        plain = {key: value for key, value in toleration.items() if key != "tolerationSeconds"}
        if plain not in remaining:
            why = "existing toleration can not be modified except its tolerationSeconds"
            return [*problems, forbidden_field("spec.tolerations", why)]
    return problems


def _validate_deadline_update(new: JSON, old: JSON) -> Errors:
    at = "spec.activeDeadlineSeconds"
    if new is not None:
        if new < 0:
            return [invalid_value(at, new, NON_NEGATIVE)]
        if old is not None and old < new:
            return [invalid_value(at, new, "must be less than or equal to previous value")]
    elif old is not None:
        return [invalid_value(at, new, "must not update from a positive integer to nil value")]
    return []


def _same_but_images(new: Objects, old: Objects) -> bool:
    if len(new) != len(old):
        return False
    return all({**a, "image": ""} == {**b, "image": ""} for a, b in zip(new, old, strict=True))


def _validate_gated(compared: Object, spec: Object, before: Object) -> Errors:
    """A pod with scheduling gates may get a narrower node selector and node affinity; `compared` then shows the old."""
    errors: Errors = []
    selector, old_selector = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if selector != old_selector:
        if any(selector.get(key) != value for key, value in old_selector.items()):
            why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            errors.append(invalid_value("spec.nodeSelector", selector or None, why))
        compared["nodeSelector"] = before.get("nodeSelector")
    affinity, old_affinity = spec.get("affinity") or {}, before.get("affinity") or {}
    if affinity.get("nodeAffinity") != old_affinity.get("nodeAffinity"):
        errors += _validate_affinity_update(affinity.get("nodeAffinity"), old_affinity.get("nodeAffinity"))
        merged = {**affinity, "nodeAffinity": old_affinity.get("nodeAffinity")}
        compared["affinity"] = {key: value for key, value in merged.items() if value is not None} or None
    return errors


def _validate_affinity_update(new: JSON, old: JSON) -> Errors:
    at = f"spec.affinity.nodeAffinity.{REQUIRED}"
    hard, old_hard = (new or {}).get(REQUIRED), (old or {}).get(REQUIRED)
    if old_hard is None:
        return []
    terms, old_terms = (hard or {}).get("nodeSelectorTerms") or [], old_hard.get("nodeSelectorTerms") or []
    if len(terms) != len(old_terms):
        why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [invalid_value(f"{at}.nodeSelectorTerms", terms, why)]
    errors: Errors = []
    for index, (term, old_term) in enumerate(zip(terms, old_terms, strict=True)):
        for field in ("matchExpressions", "matchFields"):
            given, kept = term.get(field) or [], old_term.get(field) or []
            if given[: len(kept)] != kept:
                why = "only additions are allowed (no mutations or deletions)"
                errors.append(invalid_value(f"{at}.nodeSelectorTerms[{index}].{field}", given, why))
    return errors

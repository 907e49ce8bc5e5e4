"""What kube-apiserver warns of in pods that it accepts. Source: upstream `pkg/api/pod/warnings.go`."""

from __future__ import annotations

from collections.abc import Iterator

from muster.api.codec import Object
from muster.api.labels import label_value_errors
from muster.api.quantity import parse_quantity

_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
_WEIGHTED = "preferredDuringSchedulingIgnoredDuringExecution"
_NULL_SELECTOR = "a null labelSelector results in matching no pod"


def pod_warnings(spec: Object, field: str = "spec") -> list[str]:
    """The warnings about a pod's spec, in order."""
    return [
        *_of_placement(spec, field),
        *(
            f'{field}.imagePullSecrets[{index}].name: invalid empty name ""'
            for index, secret in enumerate(spec.get("imagePullSecrets") or ())
            if not secret.get("name")
        ),
        *(
            text
            for kind in ("initContainers", "containers")
            for index, container in enumerate(spec.get(kind) or ())
            for text in _of_container(container, f"{field}.{kind}[{index}]")
        ),
    ]


def _of_placement(spec: Object, field: str) -> Iterator[str]:
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        if constraint.get("labelSelector") is None:
            yield f"{field}.topologySpreadConstraints[{index}].labelSelector: {_NULL_SELECTOR}"
    affinity = spec.get("affinity") or {}
    yield from _of_preferred_nodes(affinity.get("nodeAffinity") or {}, f"{field}.affinity.nodeAffinity.{_WEIGHTED}")
    for kind in ("podAffinity", "podAntiAffinity"):
        terms, at = affinity.get(kind) or {}, f"{field}.affinity.{kind}"
        for index, term in enumerate(terms.get(_TERMS) or ()):
            if term.get("labelSelector") is None:
                yield f"{at}.{_TERMS}[{index}].labelSelector: {_NULL_SELECTOR}"
        for index, weighted in enumerate(terms.get(_WEIGHTED) or ()):
            if (weighted.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{at}.{_WEIGHTED}[{index}].podAffinityTerm.labelSelector: {_NULL_SELECTOR}"


def _of_preferred_nodes(affinity: Object, at: str) -> Iterator[str]:
    for index, weighted in enumerate(affinity.get(_WEIGHTED) or ()):
        for place, expression in enumerate((weighted.get("preference") or {}).get("matchExpressions") or ()):
            here = f"{at}[{index}].preference.matchExpressions[{place}]"
            for number, value in enumerate(expression.get("values") or ()):
                yield from (f"{here}.values[{number}]: {value} is invalid, {why}" for why in label_value_errors(value))


def _of_container(container: Object, at: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name = variable.get("name") or ""
        if name in seen:
            yield f'{at}.env[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)
    for index, port in enumerate(container.get("ports") or ()):
        if port.get("hostIP") and not port.get("hostPort"):
            shown = (
                f"{{Name:{port.get('name') or ''} HostPort:0 ContainerPort:{port.get('containerPort') or 0} "
                f"Protocol:{port.get('protocol') or ''} HostIP:{port['hostIP']}}}"
            )
            yield f"{at}.ports[{index}]: hostIP set without hostPort: {shown}"
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        for name in ("memory", "ephemeral-storage"):
            amount = (resources.get(kind) or {}).get(name)
            if amount is not None and parse_quantity(amount).nano % 10**9:
                what = f'fractional byte value "{amount}" is invalid, must be an integer'
                yield f"{at}.resources.{kind}[{name}]: {what}"

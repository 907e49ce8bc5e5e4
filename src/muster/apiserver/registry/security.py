"""Validation of security contexts, of pods and of containers.

Source: upstream `pkg/apis/core/validation` (ValidatePodSecurityContext, ValidateSecurityContext).
"""

from __future__ import annotations

import re
from typing import TypeAlias

from muster.api.codec import Object
from muster.apiserver.fields import FieldError, duplicate, invalid_value, not_supported, required

Errors: TypeAlias = list[FieldError]

MOST_ID = 2_147_483_647
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_SYSCTL_TEXT = (
    r"must have at most 253 characters and match regex "
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)
_POD_CHOICES = (
    ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
    ("seLinuxChangePolicy", ("Recursive",)),
    ("supplementalGroupsPolicy", ("Merge", "Strict")),
)


def validate_pod_security(context: Object, at: str) -> Errors:
    """The security context of a pod."""
    errors = _validate_ids(context, at, ("fsGroup", "runAsUser", "runAsGroup"))
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        errors += _validate_id(group, f"{at}.supplementalGroups[{index}]")
    errors += _validate_sysctls(context, f"{at}.sysctls")
    for name, choices in _POD_CHOICES:
        value = context.get(name)
        if value is not None and value not in choices:
            errors.append(not_supported(f"{at}.{name}", value, choices))
    return errors + _validate_profiles(context, at)


def validate_container_security(context: Object, at: str) -> Errors:
    """The security context of a container."""
    errors = _validate_ids(context, at, ("runAsUser", "runAsGroup"))
    mount = context.get("procMount")
    if mount is not None and mount not in ("Default", "Unmasked"):
        errors.append(not_supported(f"{at}.procMount", mount, ("Default", "Unmasked")))
    if context.get("allowPrivilegeEscalation") is False:
        added = (context.get("capabilities") or {}).get("add") or ()
        here = f"{at}.allowPrivilegeEscalation"
        if context.get("privileged"):
            why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.append(invalid_value(here, False, why))
        if "CAP_SYS_ADMIN" in added:
            why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errors.append(invalid_value(here, False, why))
    return errors + _validate_profiles(context, at)


def _validate_ids(context: Object, at: str, names: tuple[str, ...]) -> Errors:
    errors: Errors = []
    for name in names:
        if context.get(name) is not None:
            errors += _validate_id(context[name], f"{at}.{name}")
    return errors


def _validate_id(value: int, at: str) -> Errors:
    return [] if 0 <= value <= MOST_ID else [invalid_value(at, value, f"must be between 0 and {MOST_ID}, inclusive")]


def _validate_sysctls(context: Object, at: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        here, name = f"{at}[{index}].name", (sysctl.get("name") or "").replace("/", ".")
        if not name:
            errors.append(required(here))
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            errors.append(invalid_value(here, sysctl["name"], _SYSCTL_TEXT))
        elif name in seen:
            errors.append(duplicate(here, name))
        seen.add(name)
    return errors


def _validate_profiles(context: Object, at: str) -> Errors:
    errors: Errors = []
    for field, system in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile = context.get(field)
        if profile is None:
            continue
        here, type_, local = f"{at}.{field}", profile.get("type") or "", profile.get("localhostProfile")
        if not type_:
            errors.append(required(f"{here}.type", f"type is required when {field} is set"))
        elif type_ not in _PROFILES:
            errors.append(not_supported(f"{here}.type", type_, _PROFILES))
        if type_ == "Localhost" and not local:
            errors.append(required(f"{here}.localhostProfile", f"must be set when {system} type is Localhost"))
        elif type_ != "Localhost" and local is not None and (type_ or system == "seccomp"):
            shown = {"Type": type_, "LocalhostProfile": local} if system == "seccomp" else local
            why = f"can only be set when {system} type is Localhost"
            errors.append(invalid_value(f"{here}.localhostProfile", shown, why))
    return errors

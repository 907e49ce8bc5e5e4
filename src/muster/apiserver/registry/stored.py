"""Kinds that are served for those who list and watch them, and have no rules of their own here.

kube-scheduler and kube-controller-manager watch all of these; a row is (group, version, plural, kind, scope, short
names, sub-resources that show the kind itself). Source of names: kube-apiserver's discovery documents.
"""

from __future__ import annotations

from typing import TypeAlias

Row: TypeAlias = tuple[str, str, str, str, bool, str, str]

_NAMESPACED, _CLUSTER = True, False

ROWS: tuple[Row, ...] = (
    ("", "v1", "podtemplates", "PodTemplate", _NAMESPACED, "", ""),
    ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", _CLUSTER, "", ""),
    (
        "admissionregistration.k8s.io",
        "v1",
        "mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
        _CLUSTER,
        "",
        "",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        _CLUSTER,
        "",
        "",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        _CLUSTER,
        "",
        "status",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        _CLUSTER,
        "",
        "",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        _CLUSTER,
        "",
        "",
    ),
    (
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        _CLUSTER,
        "csr",
        "approval status",
    ),
    ("networking.k8s.io", "v1", "ingressclasses", "IngressClass", _CLUSTER, "", ""),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", _NAMESPACED, "ing", "status"),
    ("networking.k8s.io", "v1", "ipaddresses", "IPAddress", _CLUSTER, "ip", ""),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", _NAMESPACED, "netpol", ""),
    ("networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", _CLUSTER, "", "status"),
    ("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", _CLUSTER, "", ""),
    ("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", _NAMESPACED, "", ""),
    ("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", _CLUSTER, "", "status"),
    ("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", _CLUSTER, "vac", ""),
)

"""Protobuf bodies: wire values become what the same client would have sent as JSON."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.apiserver.protobuf import ProtobufError, decode_body


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, int | bytes | str]) -> bytes:
    """A message from field numbers and values."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + message((1, message((1, api_version), (2, kind))), (2, raw))


def test_config_map_with_maps_of_texts_and_bytes() -> None:
    raw = message(
        (1, message((1, "a"), (2, ""), (7, 0), (8, b""), (11, message((1, "k"), (2, "v"))))),
        (2, message((1, "text"), (2, "1"))),
        (3, message((1, "data"), (2, b"\x00\xff"))),
        (4, 0),
    )
    assert decode_body(body("v1", "ConfigMap", raw)) == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "a", "labels": {"k": "v"}},
        "data": {"text": "1"},
        "binaryData": {"data": base64.b64encode(b"\x00\xff").decode()},
        "immutable": False,
    }


def test_pointers_keep_zero_and_plain_fields_lose_it() -> None:
    scale_to_zero = message((1, b""), (2, message((1, 0), (3, message()), (5, 0))))
    spec = decode_body(body("apps/v1", "Deployment", scale_to_zero))["spec"]
    assert spec == {"replicas": 0, "template": {}}


def test_negative_numbers_quantities_and_inline_fields() -> None:
    resources = message((2, message((1, "cpu"), (2, message((1, "500m"))))))
    port = message((2, message((1, 1), (2, 0), (3, "http"))))
    probe = message((1, message((2, port))), (2, 5))
    container = message((1, "c"), (2, "i"), (8, resources), (10, probe))
    raw = message((1, message((1, "p"))), (2, message((2, container), (25, -5))))
    assert decode_body(body("v1", "Pod", raw))["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"requests": {"cpu": "500m"}},
                "livenessProbe": {"httpGet": {"port": "http"}, "initialDelaySeconds": 5},
            }
        ],
        "priority": -5,
    }


def test_times_and_numbers_in_int_or_string() -> None:
    metadata = message((1, "l"), (8, message((1, 1_767_225_600), (2, 0))))
    spec = message((1, "me"), (4, message((1, 1_767_225_600), (2, 5_000))))
    lease = decode_body(body("coordination.k8s.io/v1", "Lease", message((1, metadata), (2, spec))))
    assert lease["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert lease["spec"] == {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.000005Z"}
    budget = message((2, message((1, message((1, 0), (2, 3))))))
    assert decode_body(body("policy/v1", "PodDisruptionBudget", budget))["spec"] == {"minAvailable": 3}


def test_delete_options_are_known_in_every_group() -> None:
    raw = message((1, 0), (4, "Background"))
    want = {"kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for version in ("v1", "batch/v1", "scheduling.k8s.io/v1alpha2"):
        assert decode_body(body(version, "DeleteOptions", raw)) == {**want, "apiVersion": version}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"k8s\x00\xff",
        body("v1", "Nothing", b""),
        body("v1", "Pod", b"\x0a\x7f"),
        body("v1", "Pod", message((1, 3))),
        body("v1", "Pod", message((1, message((1, b"\xff"))))),
        body("v1", "Pod", message((1, message((8, message((1, 1 << 62))))))),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ProtobufError):
        decode_body(data)


@given(st.binary(max_size=60))
def test_random_bytes_never_do_worse_than_an_error(raw: bytes) -> None:
    with contextlib.suppress(ProtobufError):
        decode_body(body("v1", "Pod", raw))

"""Two claims that have one device for themselves are found."""

from __future__ import annotations

from muster.api.codec import Object
from muster.simulator.device_use import DeviceUse


def claim(name: str, *devices: str, share: str = "") -> Object:
    results = [
        {"driver": "d", "pool": "p", "device": each, **({"shareID": share} if share else {})} for each in devices
    ]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "status": status}


def test_device_of_two_claims_is_a_violation_unless_both_share_it() -> None:
    use = DeviceUse()
    assert list(use.observe(claim("a", "gpu-0"), claim("a"))) == []
    assert [key for key, _ in use.observe(claim("b", "gpu-0"), claim("b"))] == ["default/b"]
    assert list(use.observe(claim("c", "gpu-1", share="1"), None)) == []
    assert list(use.observe(claim("d", "gpu-1", share="2"), None)) == []


def test_device_that_was_given_back_may_be_given_again() -> None:
    use = DeviceUse()
    assert list(use.observe(claim("a", "gpu-0"), claim("a"))) == []
    assert list(use.observe(claim("a"), claim("a", "gpu-0"))) == []
    assert list(use.observe(claim("b", "gpu-0"), claim("b"))) == []
    assert list(use.observe(None, claim("b", "gpu-0"))) == []
    assert list(use.observe(claim("c", "gpu-0"), None)) == []

"""The reference itself decides as the real scheduler did: the recorded cases that are in its scope."""

from __future__ import annotations

import gzip
from pathlib import Path

from muster.api.codec import Object, loads
from muster.testing.reference import WEIGHTS, Answer, ReferenceScheduler

RECORDING = Path(__file__).parent.parent / "conformance" / "data" / "decisions-1.36.jsonl.gz"
OUTSIDE = frozenset({"nominatedPods", "inPlaceResize"})
EVERY = 4


def test_reference_decides_as_recorded() -> None:
    cases = [loads(line) for line in gzip.decompress(RECORDING.read_bytes()).splitlines()]
    inside = [case for case in cases if not OUTSIDE & set(case["features"])]
    assert [case["id"] for case in inside[::EVERY] if not is_as_recorded(case)] == []


def is_as_recorded(case: Object) -> bool:
    answer = answer_of(case)
    if answer.refusal is not None:
        return answer.refusal == (case["prefilter"]["plugin"], case["prefilter"]["reasons"][0])
    rejected = {
        node: (status.get("plugin", "NodeAffinity"), tuple(status["reasons"]), status["code"] == "Unschedulable")
        for node, status in case["filter"].items()
        if status["code"] != "Success"
    }
    if answer.rejected != rejected or "scoreError" in case:
        return answer.rejected == rejected
    scores = {node: parts["plugins"] for node, parts in case["scores"].items()}
    return answer.scores == scores and (answer.node in case["best"] if case["best"] else answer.node is None)


def answer_of(case: Object) -> Answer:
    config, objects = case["config"] or {}, case["objects"]
    plugins, weights = config.get("plugins") or {}, dict(WEIGHTS)
    for entry in (plugins.get("multiPoint") or {}).get("enabled") or ():
        weights[entry["name"]] = entry["weight"]
    for entry in (plugins.get("score") or {}).get("disabled") or ():
        weights.pop(entry["name"], None)
    arguments = {entry["name"]: entry["args"] for entry in config.get("pluginConfig") or ()}
    reference = ReferenceScheduler(objects["nodes"], objects, arguments, weights)
    for pod in objects["pods"]:
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            reference.place(pod, pod["spec"]["nodeName"])
    return reference.schedule(case["pod"])

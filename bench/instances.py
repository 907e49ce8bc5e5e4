"""Writes the public set of mixed groups as Kubernetes objects, so that anybody can replay it on any scheduler.

    python bench/instances.py DIRECTORY [--sizes 16,64] [--seeds 3] [--tiny 20]

One YAML file an instance: nodes, the pods that run already, the pending pods with their PodGroup. `truth.json` beside
them says for each file whether min_count pods fit, where that is known. Same arguments, same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from muster.api.codec import Object, Objects
from muster.cli.bench.between import KEYS
from muster.cli.bench.exact import SHAPES, SIZES
from muster.cli.bench.instances import Instance
from muster.cli.bench.planted import PLANTED, TINY_KINDS, planted, tiny
from muster.cli.bench.ruled import PLANTED_RULED, RULED_KINDS, planted_ruled, tiny_ruled
from muster.cli.bench.several import nine_of_ten
from muster.cli.bench.stored import PLANTED_STORED, STORED_KINDS, STORED_SIZES, planted_stored, tiny_stored

GROUP = "group"


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(description="Write the instance set of mixed groups.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="pods of the planted groups")
    parser.add_argument("--seeds", type=int, default=3, help="planted groups of each family, size and number of shapes")
    parser.add_argument("--tiny", type=int, default=300, help="tiny groups of each kind")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    truth = {}
    for name, instance in instances(
        [int(size) for size in arguments.sizes.split(",")], arguments.seeds, arguments.tiny
    ):
        text = yaml.safe_dump_all(objects(instance), sort_keys=False)
        (arguments.directory / f"{name}.yaml").write_text(text, encoding="utf-8")
        truth[name] = {"min_count": instance.min_count, "fits": instance.fits, "most": instance.most}
    (arguments.directory / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    print(f"{len(truth)} instances in {arguments.directory}")


def instances(sizes: list[int], seeds: int, tiny_seeds: int) -> Iterator[tuple[str, Instance]]:
    """File names and instances."""
    for kind in TINY_KINDS:
        for seed in range(tiny_seeds):
            yield f"tiny-{kind}-{seed}", tiny(kind, seed)
    for kind in RULED_KINDS:
        for seed in range(tiny_seeds):
            yield f"ruled-{kind.replace(' ', '-')}-{seed}", tiny_ruled(kind, seed)
    for kind in STORED_KINDS:
        for seed in range(tiny_seeds):
            yield f"stored-{kind.replace(' ', '-')}-{seed}", tiny_stored(kind, seed)
    for seed in range(tiny_seeds):
        yield f"nine-of-ten-{seed}", nine_of_ten(1 + seed % 4, seed)
    for place, stored in enumerate(PLANTED_STORED):
        for size in STORED_SIZES:
            for shapes in SHAPES:
                for seed in range(seeds):
                    yield f"planted-stored-{place}-{size}-{shapes}-{seed}", planted_stored(stored, size, shapes, seed)
    for place, ruled in enumerate(PLANTED_RULED):
        for size in sizes:
            for shapes in SHAPES:
                for seed in range(seeds):
                    yield f"planted-ruled-{place}-{size}-{shapes}-{seed}", planted_ruled(ruled, size, shapes, seed)
    for place, family in enumerate(PLANTED):
        for size in sizes:
            for shapes in SHAPES:
                for seed in range(seeds):
                    yield f"planted-{place}-{size}-{shapes}-{seed}", planted(family, size, shapes, seed)


def objects(instance: Instance) -> Objects:
    """Everything that a cluster needs."""
    running: Objects = []
    for node, pod in instance.running_objects():
        running.append({**pod, "spec": {**pod["spec"], "nodeName": node}})
    group: Object = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": GROUP, "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": instance.min_count}}},
    }
    if instance.domain:
        group["spec"]["schedulingConstraints"] = {"topology": [{"key": KEYS[instance.domain]}]}
    pods: Objects = [
        {**pod, "spec": {**pod["spec"], "schedulingGroup": {"podGroupName": GROUP}}} for pod in instance.pod_objects()
    ]
    storage = [obj for _, obj in instance.storage_objects()]
    return [*storage, *instance.node_objects(), *running, group, *pods]


if __name__ == "__main__":
    main()

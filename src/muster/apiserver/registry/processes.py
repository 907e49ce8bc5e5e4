"""What is answered to those who want something of a pod's processes: simulated pods have none.

logs, exec, attach, port-forward and proxy of a real server are passed on to the node's kubelet.
"""

from __future__ import annotations

from muster.api.codec import Object
from muster.apiserver.errors import StatusError, bad_request

_WHAT = {
    "attach": "process to attach to",
    "exec": "process to run commands in",
    "portforward": "port to forward",
    "proxy": "port to talk to",
}


def log(pod: Object, container: str) -> bytes:
    """The log of a container: one line that says why there is none. Raises StatusError (400)."""
    name = _container(pod, container)
    node = pod["spec"].get("nodeName")
    if not node:
        raise bad_request(
            f'container "{name}" in pod "{pod["metadata"]["name"]}" is waiting to start: not on a node yet'
        )
    return f"container {name} runs on the simulated node {node}: there is no process, and no output\n".encode()


def _container(pod: Object, asked: str) -> str:
    spec, name = pod["spec"], pod["metadata"]["name"]
    lists = ("containers", "initContainers", "ephemeralContainers")
    names: list[str] = [container["name"] for field in lists for container in spec.get(field) or ()]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(spec["containers"]) > 1:
        choices = " ".join(container["name"] for container in spec["containers"])
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")
    return names[0]


def no_process(pod: Object, wanted: str) -> StatusError:
    """The refusal of what needs a process (`exec`, `attach`, `portforward`, `proxy`)."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
    where = f"runs on the simulated node {node}" if node else "is not on a node yet"
    return bad_request(f"pod {name} {where}: there is no {_WHAT[wanted]}")

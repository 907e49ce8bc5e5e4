"""Names as recordings write them: random parts as `#1`, `#2`, …, uids and times as marks, and back."""

from __future__ import annotations

import re
from collections.abc import Callable

from muster.api.codec import JSON, Object
from muster.api.meta import name_of, uid_of

_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

_REFUSED = re.compile(r"""(pods "[^"]+-)[bcdfghjklmnpqrstvwxz2456789]{5}(" is forbidden)""")
"""A generated name that was refused."""

_HASH_LABELS = ("pod-template-hash", "controller.kubernetes.io/hash", "controller-revision-hash")


class Names:
    """Two-way map between names in the cluster and names in a recording, for one scenario."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._written: dict[str, str] = {namespace: "<ns>"}
        self._real: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def see(self, obj: Object) -> None:
        """Take note of an object that appeared, in order of appearance."""
        name = name_of(obj)
        if name in self._written:
            return
        prefix = obj["metadata"].get("generateName")
        if prefix and not obj.get("spec", {}).get("subdomain"):
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            self.call(name, f"{self.write_text(prefix)}#{self._counts[prefix]}")
        elif see := _SEEN.get(obj.get("kind", "")):
            see(self, obj, name)

    def _see_hashed(self, obj: Object, name: str) -> None:
        """A ReplicaSet or revision whose name ends in the hash that its labels show."""
        labels = obj["metadata"].get("labels") or {}
        for label in _HASH_LABELS:
            hash_ = labels.get(label, "")
            if hash_ and name.endswith(f"-{hash_}"):
                mark = self._mark("hash", hash_)
                self.call(name, f"{self.write_text(name.removesuffix(f'-{hash_}'))}-{mark}")
                return

    def _see_job(self, obj: Object, name: str) -> None:
        """A Job of a CronJob: its name ends in the minute."""
        for owner in obj["metadata"].get("ownerReferences") or ():
            minute = name.removeprefix(f"{owner['name']}-")
            if owner["kind"] == "CronJob" and minute.isdecimal():
                self.call(name, f"{owner['name']}-{self._mark('minute', minute)}")

    def _mark(self, word: str, value: str) -> str:
        """`<word1>`, `<word2>` … for values in order of appearance."""
        if value not in self._written:
            self._counts[word] = self._counts.get(word, 0) + 1
            self.call(value, f"<{word}{self._counts[word]}>")
        return self._written[value]

    def _see_workload(self, obj: Object, name: str) -> None:
        owner = (obj["spec"].get("controllerRef") or {}).get("name", "")
        if owner and name.startswith(owner + "-"):
            self.call(name, f"{owner}-<wlhash>")

    def _see_group(self, obj: Object, name: str) -> None:
        reference = (obj["spec"].get("podGroupTemplateRef") or {}).get("workload") or {}
        workload, template = reference.get("workloadName", ""), reference.get("podGroupTemplateName", "")
        if workload and name.startswith(f"{workload}-{template}-"):
            self.call(name, f"{self._written.get(workload, workload)}-{template}-<pghash>")

    def call(self, name: str, written: str) -> None:
        """The object `name` is written so in the recording."""
        self._written[name] = written
        self._real[written] = name

    def real(self, written: str) -> str | None:
        """The name in the cluster of a written name; None while no such object was seen."""
        if "#" in written or written in self._real:
            return self._real.get(written)
        return written.replace("<ns>", self.namespace)

    def write(self, value: JSON) -> JSON:
        """A value with all names, uids and times as a recording writes them."""
        if isinstance(value, str):
            return self.write_text(value)
        if isinstance(value, list):
            return [self.write(item) for item in value]
        if isinstance(value, dict):
            return {self.write_text(key): self.write(item) for key, item in value.items()}
        return value

    def write_text(self, text: str) -> str:
        """The same for one string."""
        if text in self._written:
            return self._written[text]
        for name in sorted(self._written, key=len, reverse=True):
            if name in text:
                written = self._written[name].replace("\\", r"\\")
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w])", written, text)
        return _REFUSED.sub(r"\1#?\2", _TIME.sub("<time>", _UID.sub("<uid>", text)))

    def owner_uid(self, candidates: list[Object]) -> str:
        """The uid of the first candidate, or one that nobody has."""
        return uid_of(candidates[0]) if candidates else "00000000-0000-4000-8000-000000000000"


_SEEN: dict[str, Callable[[Names, Object, str], None]] = {
    "Workload": Names._see_workload,
    "PodGroup": Names._see_group,
    "ReplicaSet": Names._see_hashed,
    "ControllerRevision": Names._see_hashed,
    "Job": Names._see_job,
}

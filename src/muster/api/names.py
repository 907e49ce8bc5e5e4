"""Names made of other names: cut to fit, with a hash that keeps them apart.

Sources: FNV-1a (32 bit) as in Go's `hash/fnv` New32a; `apimachinery/pkg/util/rand` SafeEncodeString.
"""

from __future__ import annotations

MAX_LABEL = 63
MAX_NAME = 253
_SAFE = "bcdfghjklmnpqrstvwxz2456789"


def fnv32a(data: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def safe_hash(*parts: str) -> str:
    """A hash of the parts, in letters and digits that spell no words."""
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(fnv32a("\0".join(parts).encode())))


def job_group_names(job: str, uid: str) -> tuple[str, str, str]:
    """The names of a Job's Workload, of the template in it and of the PodGroup: the same for the same Job.

    Source: workload-api.md 5.3 (kube-controller-manager; the bytes of the hashes are not meant to be the same).
    """
    template = truncated_label(job, "-pgt-0")
    workload = truncated_label(job, "-" + safe_hash(uid), MAX_NAME)
    return workload, template, truncated_pair(workload, template, safe_hash(workload, template))


def truncated_label(base: str, end: str, limit: int = MAX_LABEL) -> str:
    """`base` and `end`, `base` cut so that both fit into `limit`; it ends in a letter or digit."""
    return base[: limit - len(end)].rstrip("-.") + end


def truncated_pair(first: str, second: str, end: str, limit: int = MAX_NAME) -> str:
    """`first-second-end` of at most `limit` characters: the longer part gives way, both if both pass half the room."""
    room = limit - len(end) - 2
    half = room // 2
    if len(first) + len(second) > room:
        if len(first) <= half:
            second = second[: room - len(first)]
        elif len(second) <= half:
            first = first[: room - len(second)]
        else:
            first, second = first[: room - half], second[:half]
    return f"{first}-{second}-{end}"

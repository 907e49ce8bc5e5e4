"""Where counted pods are, and their metadata: looked up by key when one goes, moves or is seen in a new light."""

from __future__ import annotations

from typing import Protocol

from muster.api.codec import Object


class PodBook(Protocol):
    """What the owner of a ClusterState knows of its pods, so that a large state need not know it a second time."""

    def node_of(self, key: str) -> str | None:
        """The node on which the pod was counted last; of a pod that is not counted, anything."""

    def metadata_of(self, key: str) -> Object:
        """The metadata of a counted pod."""


class OwnPodBook:
    """The book of a state whose owner keeps none: written by the state."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._metadata: dict[str, Object] = {}

    def node_of(self, key: str) -> str | None:
        """The node on which the pod is counted."""
        return self._nodes.get(key)

    def metadata_of(self, key: str) -> Object:
        """The metadata of a counted pod."""
        return self._metadata[key]

    def note(self, key: str, node: str, metadata: Object) -> None:
        """A pod is counted there."""
        self._nodes[key] = node
        self._metadata[key] = metadata

    def forget(self, key: str) -> None:
        """A pod is not counted any more."""
        self._nodes.pop(key, None)
        self._metadata.pop(key, None)

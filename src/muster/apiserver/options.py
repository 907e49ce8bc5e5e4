"""How the embedded API server behaves."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Release = Literal["1.35", "1.36", "1.37"]
Mode = Literal["AlwaysAllow", "AlwaysDeny", "Node", "RBAC"]
JobGroups = Literal["off", "1.36", "1.37"]


class ServerOptions(Struct, frozen=True):
    """`emulate` narrows the API to one release, without the leniencies that the embedded server allows otherwise.

    `job_groups`: by which release's rules Jobs get groups (it decides what may change in a Job); None: those of the
    emulated release, else of 1.36.
    `taint_new_nodes`: new nodes get the not-ready taint, as TaintNodesByCondition does; None: only under `emulate`.
    `authorization_modes`: who decides what a user may do; with RBAC the server makes the roles that every cluster has.
    `restricts_nodes`: whether kubelets may write only what is theirs, as with upstream's plugin NodeRestriction.
    `bookmark_interval_s`: how often watches that allow bookmarks get one.
    """

    emulate: Release | None = None
    job_groups: JobGroups | None = None
    taint_new_nodes: bool | None = None
    bookmark_interval_s: float = 60.0
    authorization_modes: tuple[Mode, ...] = ("AlwaysAllow",)
    restricts_nodes: bool = False

    @property
    def job_group_rules(self) -> JobGroups:
        """By which release's rules Jobs get groups."""
        if self.job_groups is not None:
            return self.job_groups
        return "off" if self.emulate == "1.35" else self.emulate or "1.36"

    @property
    def taints_new_nodes(self) -> bool:
        """Whether a new node gets the not-ready taint."""
        return self.emulate is not None if self.taint_new_nodes is None else self.taint_new_nodes

    @property
    def is_lenient(self) -> bool:
        """Whether looser input than a real server's is accepted, with a warning."""
        return self.emulate is None

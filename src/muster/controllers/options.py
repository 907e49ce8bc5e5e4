"""What people can set about controllers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

JobGroups = Literal["off", "1.36", "1.37"]


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Options of all controllers.

    `job_groups`: whether the Job controller makes Workloads and PodGroups: not at all, for Indexed Jobs that run all
    their pods at once (1.36), or as `spec.scheduling` says (1.37).
    """

    job_groups: JobGroups = "1.36"

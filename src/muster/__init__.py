"""Muster, a workload-aware scheduler for Kubernetes: groups of pods start as a whole or not at all."""

__version__ = "0.1.0"

"""Builders of objects and an in-process cluster, for tests of Muster and of its users."""

from muster.testing.builders import make_group, make_job, make_node, make_pod

__all__ = ["make_group", "make_job", "make_node", "make_pod"]

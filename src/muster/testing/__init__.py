"""Builders of objects and an in-process cluster, for tests of Muster and of its users."""

from muster.testing.builders import make_group, make_job, make_node, make_pod
from muster.testing.definitions import make_definition

__all__ = ["make_definition", "make_group", "make_job", "make_node", "make_pod"]

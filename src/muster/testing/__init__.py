"""Builders of objects and an in-process cluster, for tests of Muster and of its users."""

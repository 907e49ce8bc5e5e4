"""Kubernetes objects as data: quantities, selectors, resource kinds, versions.

Types and pure functions only: no I/O."""

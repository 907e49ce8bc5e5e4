"""Deployments, ReplicaSets, StatefulSets and DaemonSets, each a pure sync and the revisions they share."""

"""Explanations of what waits in a cluster, and of what would help: by the queue's own rules and the engine."""

"""Nodes: their health, taints and what is evicted or cleared away for them."""

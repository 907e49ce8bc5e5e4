"""Simulated nodes: what a kubelet would report, as data and timers."""

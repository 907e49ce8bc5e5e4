"""Preemption carried out: units of the cluster, plans on it, evictions."""

"""Volumes and claims, also those of devices."""

"""Devices of ResourceSlices and their allocation to ResourceClaims (dynamic resource allocation): pure functions."""

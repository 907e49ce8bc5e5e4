"""Volumes of pods that were placed: bound before the pods themselves."""

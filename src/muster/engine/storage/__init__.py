"""Volumes as decisions see them: what claims have or can get on each node, what is promised to pods on their way."""

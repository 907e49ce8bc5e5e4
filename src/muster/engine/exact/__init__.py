"""Exact placement of groups of several shapes: column generation over node patterns, with proofs in integers.

Pure functions over arrays. `solver` is imported only when a greedy pass has failed, because it loads HiGHS.
"""

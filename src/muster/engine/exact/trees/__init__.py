"""Exact placement of trees of groups: which of them run, in which domains, with how many pods; with proofs in integers.

Pure. `search` and `relaxation` are imported only when the first tries have failed, because they load HiGHS.
"""

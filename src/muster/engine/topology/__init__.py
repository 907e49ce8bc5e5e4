"""Groups and topology: domains, levels, parts, shares, ranks.

`domains` is the upstream constraint, `levels` what goes beyond it.
"""

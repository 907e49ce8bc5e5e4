"""Measurements that anybody can repeat with `muster bench`. Each module has `run(progress) -> list[Object]`: rows of
figures, the same keys in every row of a module. Nothing here is asserted: figures are for people to read.
"""

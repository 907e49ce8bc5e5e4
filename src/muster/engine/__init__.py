"""The decisions: pure functions of a snapshot, numpy inside. Knows no API, no clock, no I/O."""

"""Where objects are kept: in memory, or on disk with SQLite."""

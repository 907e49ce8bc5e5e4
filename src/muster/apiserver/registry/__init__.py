"""The rules of each kind: defaults, validation, what a write may change. No I/O; effects are the server's."""

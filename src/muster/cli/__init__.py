"""The command line: one module a command, `main.py` as the entry. The only package that prints."""

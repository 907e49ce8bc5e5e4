"""A whole cluster under virtual time, and what is reported of it."""

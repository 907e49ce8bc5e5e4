"""Who may do what: request attributes, RBAC, escalation checks and impersonation of the embedded server."""

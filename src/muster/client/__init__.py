"""How anyone talks to an API server: transports, a small client, list+watch informers."""

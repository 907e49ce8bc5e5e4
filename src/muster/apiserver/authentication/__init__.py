"""Who asks: the authentication configuration, tokens, and the chain of authenticators of the embedded server."""

"""The embedded API server: storage, validation, patches, watches, discovery, HTTP."""

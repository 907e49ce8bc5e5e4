"""Endpoints and EndpointSlices."""

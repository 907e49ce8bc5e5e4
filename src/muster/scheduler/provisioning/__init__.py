"""ProvisioningRequests: nodes for a whole group at once, from autoscalers that understand such a request."""

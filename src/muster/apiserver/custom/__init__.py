"""Custom resources: kinds that a CustomResourceDefinition brings, from its schema to what is served."""

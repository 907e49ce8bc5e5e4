"""The rules of scheduling, one module a plugin, named as upstream names them."""

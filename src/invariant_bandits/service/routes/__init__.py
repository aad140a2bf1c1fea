"""The service's own protocol, version 1."""

"""The gateway: other APIs' clients in, every provider and our own tools behind it."""

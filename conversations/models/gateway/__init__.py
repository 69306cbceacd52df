"""Rows of requests to the gateway."""

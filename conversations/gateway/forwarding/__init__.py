"""Requests whose model is at a host of the client's own API."""

"""Requests and answers that pass to and from a host of the client's own API."""

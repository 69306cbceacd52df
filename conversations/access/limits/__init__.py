"""Limits of use for people, groups and access tokens: which apply, and what is left."""

"""Parley over PostgreSQL and Redis: costs of a turn, and thousands of open streams."""

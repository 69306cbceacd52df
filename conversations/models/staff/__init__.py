"""Rows that only staff and the engine read: processes, replays, versions."""

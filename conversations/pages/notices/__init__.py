"""Announcements of staff to all users, and the terms of use."""

"""Rows by which staff decide over people's data: holds, retention, terms, notices."""

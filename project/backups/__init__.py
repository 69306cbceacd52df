"""Backups: what a folder of one holds, and how it is put back."""

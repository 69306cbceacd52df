"""Admin of legal holds, retention, announcements, terms, and the erasure of people."""

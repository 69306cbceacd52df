"""Actions on several rows of the admin's lists of conversations, turns and people."""

"""Plain text of files and models: its encoding, and thoughts inside it."""

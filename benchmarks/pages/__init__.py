"""Long conversations in a browser."""

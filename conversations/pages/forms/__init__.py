"""Forms of the chat page."""

"""Input that is made to be slow, and how long it stalls the event loop."""

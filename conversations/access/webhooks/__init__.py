"""Who wants to be told of what, and the outbox of what they are told."""

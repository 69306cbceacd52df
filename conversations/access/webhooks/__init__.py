"""Subscriptions of webhook endpoints and people to events, and their outbox."""

"""Sends what the outbox holds: webhooks and e-mails."""

"""Rows of webhooks: endpoints, and what is sent to them."""

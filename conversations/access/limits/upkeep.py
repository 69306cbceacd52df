"""Periodic work on limits of use: write what was used, and close lost leases."""

from __future__ import annotations

from conversations.access.limits import applicable
from conversations.access.limits.expired_leases import sweep_expired
from conversations.access.limits.leases import amounts_taken, leases
from conversations.access.limits.warnings import warn


def update_limits() -> None:
    """Called by the engine every two seconds. One query where there is no limit."""
    exists = applicable.note_existence()
    charged = leases.flush()
    for key, caps in charged.items():
        warn(key, caps, amounts_taken(key) - leases.idle(key))
    if exists:
        sweep_expired()


def return_leases() -> None:
    """Called when the process ends: what it has not used is free for others."""
    leases.flush(returns_all=True)

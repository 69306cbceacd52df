"""Removal of a participant, from pages and REST: it ends open connections too."""

from __future__ import annotations

from django.db import transaction

from conversations.access import participation
from conversations.engine.connection_revocation import check_soon
from conversations.models import Participant


def remove_participant(participant: Participant) -> None:
    """End the participation, and at once the participant's open connections."""
    with transaction.atomic():
        participation.remove(participant)
        transaction.on_commit(check_soon)

"""Erase the texts about a person from the audit log; the chain still verifies."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from conversations.audit.models import AuditEvent, AuditText


def erase_texts(user_id: int) -> int:
    """Erase who acted, where the user did, and the details where an act concerned the
    user. Return the number of texts. The caller records `person.erase`, in the same
    transaction: without it verification reports the texts as removed."""
    acted, concerned = Q(actor=user_id), Q(subject=user_id)
    count = _rows(acted).update(identity=None, identity_salt=None)
    return count + _rows(concerned).update(details=None, details_salt=None)


def _rows(condition: Q) -> QuerySet[AuditText]:
    events = AuditEvent.objects.filter(condition)
    return AuditText.chained.filter(event__in=events.values("pk"))

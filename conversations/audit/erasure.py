"""Erase the texts about a person from the audit log; the chain still verifies."""

from __future__ import annotations

import json
from datetime import datetime

from django.db.models import Q, QuerySet

from conversations.audit.models import AuditEvent, AuditText


def erase_texts(user_id: int) -> int:
    """Erase who acted, where the user did, and the details where an act concerned the
    user. Where nobody was signed in, as at a failed sign-in, the browser and address
    are likely the concerned user's. Return the number of texts. The caller records
    `person.erase`, in the same transaction: without it verification reports the texts
    as removed."""
    concerned = Q(subject=user_id)
    acted = Q(actor=user_id) | (concerned & Q(actor=None))
    count = _rows(acted).update(identity=None, identity_salt=None)
    return count + _rows(concerned).update(details=None, details_salt=None)


def find_former_names(user_id: int) -> dict[str, datetime]:
    """Names that a user had before, with the time until then."""
    renamed = Q(action="user.change", target_type="auth.user", target_id=str(user_id))
    texts = _rows(renamed).filter(details__contains='"username"')
    found = {}
    for details, at in texts.values_list("details", "event__at").order_by("event"):
        name = (json.loads(details or "{}").get("before") or {}).get("username")
        if name:
            found[name] = at
    return found


def _rows(condition: Q) -> QuerySet[AuditText]:
    events = AuditEvent.objects.filter(condition)
    return AuditText.chained.filter(event__in=events.values("pk"))

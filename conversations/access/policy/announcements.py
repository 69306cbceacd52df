"""Announcements as this process knows them, and those that a user sees.

The engine reads the rows every few seconds, so a page asks for a user's groups or
dismissals only while an announcement depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.utils import timezone

from conversations.models import Announcement, AnnouncementDismissal


@dataclass(frozen=True, slots=True)
class Published:
    id: int
    text: str
    level: str
    starts_at: datetime
    ends_at: datetime | None
    groups: frozenset[int]  # empty: everybody
    dismissible: bool

    def is_shown(self, now: datetime) -> bool:
        return self.starts_at <= now and (self.ends_at is None or now < self.ends_at)


class _State:
    published: tuple[Published, ...] | None = None  # None: not read yet


_state = _State()


def load() -> tuple[Published, ...]:
    """Read the rows that are shown or will be."""
    rows = Announcement.objects.filter(Q(ends_at=None) | Q(ends_at__gt=timezone.now()))
    found = tuple(
        Published(
            row.pk,
            row.text,
            row.level,
            row.starts_at,
            row.ends_at,
            frozenset(group.pk for group in row.groups.all()),
            row.dismissible,
        )
        for row in rows.prefetch_related("groups")
    )
    _state.published = found
    return found


def forget(**_: Any) -> None:
    """A receiver of signals: the next page reads the rows again."""
    _state.published = None


def shown_to(user: Any) -> list[Published]:
    """The announcements for a user, without those that the user has dismissed."""
    published = load() if _state.published is None else _state.published
    now = timezone.now()
    found = [each for each in published if each.is_shown(now)]
    if any(each.groups for each in found):
        own = set(user.groups.values_list("pk", flat=True))
        found = [each for each in found if not each.groups or each.groups & own]
    if any(each.dismissible for each in found):
        dismissed = _dismissed_by(user)
        found = [
            each for each in found if not (each.dismissible and each.id in dismissed)
        ]
    return found


def _dismissed_by(user: Any) -> set[int]:
    rows = AnnouncementDismissal.objects.filter(user=user)
    return set(rows.values_list("announcement_id", flat=True))


def dismiss(user: Any, announcement_id: int) -> bool:
    """Whether the user sees this announcement and may dismiss it."""
    shown = [each for each in shown_to(user) if each.dismissible]
    if announcement_id not in {each.id for each in shown}:
        return False
    row = Announcement.objects.filter(pk=announcement_id).first()
    if row is None:
        return False
    row.dismiss(user)
    return True


for _signal in (post_save, post_delete):
    _signal.connect(forget, sender=Announcement)
m2m_changed.connect(forget, sender=Announcement.groups.through)

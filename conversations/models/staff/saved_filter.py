"""Row of a saved filter: the query of an admin's list, under a name."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class SavedFilterQuerySet(models.QuerySet["SavedFilter"]):
    def shown_to(self, user_id: int) -> SavedFilterQuerySet:
        return self.filter(Q(owner=user_id) | Q(is_shared=True))


class SavedFilter(models.Model):
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+"
    )
    list_of = models.CharField(max_length=100)  # the model's label, in lower case
    name = models.CharField(_("name"), max_length=60)
    query = models.CharField(max_length=1_000)
    is_shared = models.BooleanField(_("for all staff"), default=False)

    objects = SavedFilterQuerySet.as_manager()

    class Meta:
        default_permissions = ()
        ordering = ["name", "pk"]
        verbose_name = _("saved filter")
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "list_of", "name"],
                name="conversations_saved_filter_once",
            )
        ]
        indexes = [
            models.Index(fields=["list_of"], name="conversations_filters_of_list")
        ]

    def __str__(self) -> str:
        return self.name

"""Folders and tags, in which users keep their conversations."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower
from django.utils.translation import gettext_lazy as _

from llm.models import LanguageModel

MAX_FOLDERS = 200  # of one user
MAX_TAGS = 200
MAX_FOLDER_FILES = 20
MAX_FOLDER_TEXT = 200_000  # bytes of all files of a folder, which each turn is sent


class OwnedQuerySet(models.QuerySet[Any]):
    def of(self, user: Any) -> OwnedQuerySet:
        """Rows that `user` may see everywhere except in the admin."""
        return self.filter(owner_id=user.pk)


class Folder(models.Model):
    """A user's folder of conversations, with instructions, model and files of its
    own."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="folders"
    )
    name = models.CharField(max_length=100)
    instructions = models.TextField(
        blank=True,
        help_text=_(
            "System prompt of its conversations; empty means the preset's prompt, or"
            " the site's."
        ),
    )
    language_model = models.ForeignKey(
        LanguageModel,
        models.SET_NULL,
        null=True,
        blank=True,
        help_text=_("Empty means the preset's model, or the default model."),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = OwnedQuerySet.as_manager()

    class Meta:
        ordering = [Lower("name"), "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"], name="conversations_folder_name_once"
            )
        ]

    def __str__(self) -> str:
        return self.name


class FolderFile(models.Model):
    """A file that each turn of a folder's conversations is given: a text as context, a
    picture or PDF as a file of a message."""

    folder = models.ForeignKey(Folder, models.CASCADE, related_name="files")
    name = models.CharField(max_length=255)
    content_type = models.CharField(
        max_length=100, default="text/plain", db_default="text/plain"
    )
    text = models.TextField()
    file = models.FileField(
        upload_to="folders/%Y/%m/",
        blank=True,
        default="",
        db_default="",
        help_text=_("Pictures and documents; texts are in `text`."),
    )
    size = models.PositiveIntegerField(help_text=_("Bytes."))
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "pk"]
        default_permissions = ()  # the folder's permissions apply

    def __str__(self) -> str:
        return self.name


class Tag(models.Model):
    """A word by which a user finds conversations again."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="tags"
    )
    name = models.CharField(max_length=50)

    objects = OwnedQuerySet.as_manager()

    class Meta:
        ordering = [Lower("name"), "pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"], name="conversations_tag_name_once"
            )
        ]

    def __str__(self) -> str:
        return self.name

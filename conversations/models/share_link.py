"""Rows of read-only links to conversations, and of staff's rules about them."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.audit.record import record_event
from conversations.models.conversation import Conversation
from conversations.models.turn import Turn
from llm.db.encrypted_field import EncryptedTextField
from llm.db.secret_rows import SecretRow
from llm.wire.items import new_id

TOKEN_BYTES = 32  # of randomness in the address of a link


def share_id() -> str:
    return new_id("share")


class Audience(models.TextChoices):
    """Who may open a link, the narrowest first."""

    GROUP = "group", _("one of my groups")
    SIGNED_IN = "signed_in", _("everybody who can sign in here")
    PUBLIC = "public", _("everybody who has the link")


class ShareLinkQuerySet(models.QuerySet["ShareLink"]):
    def of(self, user: Any) -> ShareLinkQuerySet:
        """The links that `user` has made and not revoked."""
        rows = self.filter(owner_id=user.pk, revoked_at=None)
        return rows.filter(conversation__deleted_at=None)

    def live(self) -> ShareLinkQuerySet:
        """Links that open: neither revoked nor expired, of a conversation that exists
        and is not temporary, whose owner may sign in."""
        unexpired = models.Q(expires_at=None) | models.Q(expires_at__gt=timezone.now())
        return self.filter(
            unexpired,
            revoked_at=None,
            conversation__is_temporary=False,
            conversation__deleted_at=None,
            conversation__owner=models.F("owner"),
            owner__is_active=True,
        )

    def with_token(self, token: str) -> ShareLink | None:
        """The live link with this token in its address."""
        rows = self.live().select_related("conversation", "owner", "leaf")
        return rows.filter(token_digest=digest_of(token)).first()


class ShareLink(SecretRow):
    """A link with which others read a conversation. Its address contains a secret
    token, of which the row has a digest, and an encrypted copy for the owner."""

    class Kind(models.TextChoices):
        SNAPSHOT = "snapshot", _("what is there now")
        LIVE = "live", _("also what follows")

    id = models.CharField(
        primary_key=True, max_length=64, default=share_id, editable=False
    )
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="share_links"
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="share_links"
    )
    token_digest = models.CharField(max_length=64, unique=True, editable=False)
    token = EncryptedTextField(editable=False)
    audience = models.CharField(max_length=10, choices=Audience.choices)
    group = models.ForeignKey(
        Group,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("Group whose members may open the link."),
    )
    kind = models.CharField(max_length=10, choices=Kind.choices)
    leaf = models.ForeignKey(
        Turn,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("The last turn of what is shared."),
    )
    last_item = models.BigIntegerField(
        null=True,
        blank=True,
        editable=False,
        help_text=_("The last item that a snapshot shows."),
    )
    title = models.CharField(
        max_length=200,
        null=True,
        editable=False,
        help_text=_("The conversation's title when a snapshot was made."),
    )
    shows_owner = models.BooleanField(_("my name"), default=False)
    shows_reasoning = models.BooleanField(_("the model's thoughts"), default=False)
    shows_arguments = models.BooleanField(
        _("what tools were called with"), default=False
    )
    shows_results = models.BooleanField(_("results of tools"), default=False)
    views = models.PositiveIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ShareLinkQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["created_at"], name="conversations_link_new")]

    def __str__(self) -> str:
        return self.id

    def secret_origin(self, column: str) -> str:
        return "share:"  # it is sent to nobody but its owner

    def set_new_token(self) -> None:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self.token, self.token_digest = token, digest_of(token)

    @property
    def is_snapshot(self) -> bool:
        return self.kind == self.Kind.SNAPSHOT

    @property
    def shown_title(self) -> str:
        """The title that readers see: of a snapshot the one of then."""
        return (self.title or "") if self.is_snapshot else self.conversation.title

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()

    def revoke(self) -> None:
        """End the link. Idempotent."""
        rows = ShareLink.objects.filter(pk=self.pk, revoked_at=None)
        if rows.update(revoked_at=timezone.now()):
            record_event("share.revoke", target=self, subject=self.owner_id)
        self.refresh_from_db(fields=["revoked_at"])

    def count_view(self) -> None:
        ShareLink.objects.filter(pk=self.pk).update(views=models.F("views") + 1)


class ShareRule(models.Model):
    """What the members of a group may share, instead of the setting `SHARE_LINKS`.
    A user in several groups with rules has the widest."""

    class Widest(models.TextChoices):
        OFF = "off", _("nothing")
        GROUP = "group", _("with their groups")
        SIGNED_IN = "signed_in", _("with everybody who can sign in")
        PUBLIC = "public", _("with everybody")

    group = models.OneToOneField(Group, models.CASCADE, related_name="share_rule")
    widest = models.CharField(_("may share"), max_length=10, choices=Widest.choices)

    def __str__(self) -> str:
        return f"{self.group}: {self.get_widest_display()}"


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()

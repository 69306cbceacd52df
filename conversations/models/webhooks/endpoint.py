"""Row of a webhook endpoint: an address that receives events."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.webhooks.error_texts import FOR_NOBODY
from conversations.models.webhooks.signature import generate_secret
from llm.db.bound_secrets import SecretUnavailable
from llm.db.encrypted_field import EncryptedTextField
from llm.db.secret_rows import SecretRow
from llm.http.addresses import Network, is_public, parse_address
from tools.errors import AddressRefused
from tools.http.guarded_client import check_url
from tools.http.validation import parse_networks
from tools.validators import validate_networks

MAX_ENDPOINTS = 10  # of one user
COUNTED = ("failures", "failing_since", "disabled_reason")  # until it is switched on
OVERLAP = timedelta(days=1)  # in which the secret of before signs, too


class EventType(models.TextChoices):
    """The first four are named as OpenAI names them."""

    COMPLETED = "response.completed", _("an answer is complete")
    INCOMPLETE = "response.incomplete", _("an answer ended early")
    FAILED = "response.failed", _("an answer failed")
    CANCELLED = "response.cancelled", _("an answer was stopped")
    QUESTION = "parley.question.opened", _("a person is asked for an approval")
    LIMIT_WARNING = "parley.limit.warning", _("most of a limit or budget is used")
    LIMIT_REACHED = "parley.limit.reached", _("a limit or budget is used up")


def validate_events(names: Any) -> None:
    if not isinstance(names, list) or not names:
        raise ValidationError(_("Choose at least one kind of event."))
    if unknown := [name for name in names if name not in EventType.values]:
        raise ValidationError(
            _("There is no event %(name)r."), params={"name": str(unknown[0])[:100]}
        )


def validate_address(url: str, networks: str) -> None:
    """Names are resolved, and checked again, each time that something is sent."""
    try:
        parsed = check_url(url)
    except AddressRefused as exc:
        raise ValidationError(str(exc)) from exc
    if parsed.scheme != "https" and not networks.strip():
        raise ValidationError(_("The address must begin with https://."))
    if parsed.fragment:
        raise ValidationError(_("Leave out the “#” and what follows it."))
    address = parse_address(parsed.raw_host or "")
    if address is not None and not is_public(address) and not networks.strip():
        raise ValidationError(_("The address leads into a private network."))


class WebhookEndpointQuerySet(models.QuerySet["WebhookEndpoint"]):
    def of(self, user: Any) -> WebhookEndpointQuerySet:
        """The user's own."""
        return self.filter(owner_id=user.pk)

    def wanting(
        self, event: str, user_id: int | None, group_id: int | None = None
    ) -> list[WebhookEndpoint]:
        """Those that subscribe to this event of a user, or of a whole group: the
        user's own, and those of staff that are for everybody, the user or a group."""
        chosen = Q(users=None, groups=None)
        if group_id is not None:
            chosen |= Q(groups=group_id)
        if user_id is not None:
            chosen |= Q(users=user_id) | Q(groups__user=user_id)
        wanted = Q(owner=None) & chosen
        if user_id is not None:
            wanted |= Q(owner_id=user_id, owner__is_active=True)
        rows = self.filter(wanted, is_enabled=True).only("id", "events").distinct()
        return [row for row in rows if event in row.events]

    def forget_previous_secrets(self) -> int:
        """Erase those whose time is over."""
        expired = self.filter(previous_secret_until__lte=timezone.now())
        return expired.update(previous_secret=None, previous_secret_until=None)


class WebhookEndpoint(SecretRow):
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        editable=False,
        related_name="webhook_endpoints",
        help_text=_("Empty for those that staff have made."),
    )
    users = models.ManyToManyField(
        settings.AUTH_USER_MODEL,
        blank=True,
        related_name="+",
        help_text=_(
            "It is told of their events. No user and no group: of everybody's."
        ),
    )
    groups = models.ManyToManyField(
        Group,
        blank=True,
        related_name="+",
        help_text=_("It is told of the events of their members."),
    )
    name = models.CharField(_("name"), max_length=100)
    url = models.CharField(
        _("address"),
        max_length=2000,
        help_text=_("An https address that accepts POST requests."),
    )
    networks = models.TextField(
        _("allowed networks"),
        blank=True,
        validators=[validate_networks],
        help_text=_(
            "Private networks that the receiver may be in, one per line, such as"
            " 10.1.0.0/16; the public internet is always allowed. With one, the address"
            " may begin with http."
        ),
    )
    events = models.JSONField(
        _("events"), default=list, validators=[validate_events], blank=True
    )
    is_enabled = models.BooleanField(_("on"), default=True)
    secret_hint = models.CharField(max_length=20, blank=True, editable=False)
    secret = EncryptedTextField(hint_field="secret_hint", editable=False)
    previous_secret = EncryptedTextField(null=True, editable=False)
    previous_secret_until = models.DateTimeField(
        _("old secret works until"), null=True, editable=False
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        editable=False,
        related_name="+",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    last_success_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_failure_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=300, blank=True, editable=False)
    failures = models.PositiveIntegerField(
        default=0, editable=False, help_text=_("Since the last success.")
    )
    failing_since = models.DateTimeField(null=True, blank=True, editable=False)
    disabled_reason = models.CharField(
        max_length=300,
        blank=True,
        editable=False,
        help_text=_("Why it was switched off by itself."),
    )

    objects = WebhookEndpointQuerySet.as_manager()

    class Meta:
        ordering = ["name", "pk"]
        verbose_name = _("webhook endpoint")
        verbose_name_plural = _("webhook endpoints")

    def __str__(self) -> str:
        return self.name

    def secret_origin(self, column: str) -> str:
        """It signs and is sent nowhere, so it stays when the address changes."""
        return ""

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        return tuple(parse_networks(self.networks)[0])

    @transaction.atomic
    def renew_secret(self) -> str:
        """Save the row with a new secret and return that, which is shown once. The one
        of before also signs for a day, and the one before that no more."""
        secret = generate_secret()
        if self._state.adding:
            self.secret = secret
            self.save()
            return secret
        locked = WebhookEndpoint.objects.select_for_update()
        self.refresh_from_db(fields=["secret"], from_queryset=locked)
        self._move_secret()
        self.secret = secret
        names = ["secret", "secret_hint", "previous_secret", "previous_secret_until"]
        self.save(update_fields=names)
        return secret

    def _move_secret(self) -> None:
        """What is encrypted is bound to its column, so it is encrypted again."""
        self.previous_secret = self.previous_secret_until = None
        with suppress(SecretUnavailable):  # then it signs nothing already
            self.previous_secret = self.secret.reveal()
            self.previous_secret_until = timezone.now() + OVERLAP

    def reveal_secrets(self) -> list[str]:
        """Those that sign now, the newest first. Raises SecretUnavailable."""
        secrets, until = [self.secret.reveal()], self.previous_secret_until
        if self.previous_secret and until and until > timezone.now():
            with suppress(SecretUnavailable):  # the new one can do without it
                secrets.append(self.previous_secret.reveal())
        return secrets

    def switch(self, *, on: bool) -> None:
        """Switching on forgets the failures counted so far. Save the row afterwards."""
        if on and not self.is_enabled:
            self.failures, self.failing_since, self.disabled_reason = 0, None, ""
        self.is_enabled = on


def remove_user(sender: Any, instance: Any, **kwargs: Any) -> None:
    """A receiver of `pre_delete`."""
    for row in _staff_endpoints().filter(users=instance.pk):
        row.users.remove(instance.pk)
        _switch_off_if_for_nobody(row)


def remove_group(sender: Any, instance: Group, **kwargs: Any) -> None:
    """A receiver of `pre_delete`."""
    for row in _staff_endpoints().filter(groups=instance.pk):
        row.groups.remove(instance.pk)
        _switch_off_if_for_nobody(row)


def _staff_endpoints() -> models.QuerySet[WebhookEndpoint]:
    """Locked, so that of two deletions at once the later one finds nothing left; in one
    order, so that neither waits for the other."""
    rows = WebhookEndpoint.objects.filter(owner=None).order_by("pk")
    return rows.select_for_update(of=["self"])


def _switch_off_if_for_nobody(row: WebhookEndpoint) -> None:
    """Without a user and a group it would be for everybody, which no member of staff
    has chosen."""
    if row.users.exists() or row.groups.exists():
        return
    row.switch(on=False)
    row.disabled_reason = FOR_NOBODY
    row.save(update_fields=["is_enabled", "disabled_reason"])

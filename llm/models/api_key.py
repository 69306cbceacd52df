"""Row of an API key: state, weight, rest and use."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models, transaction
from django.db.models import Q
from django.dispatch import Signal
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.db.encrypted_field import (
    EncryptedTextField,
    Secret,
    SecretUnavailable,
    binding_of,
    replace_stored,
)
from llm.db.secret_rows import SecretRow, is_unbound, why_not_sent
from llm.errors import QuotaExhausted
from llm.keys.references import (
    MAX_HINT,
    ReferenceRefused,
    fingerprint_of,
    hint_of_reference,
    is_reference,
    read_reference,
)
from llm.keys.token_credentials import compact_key
from llm.models.provider import Provider

#: Sent when a provider's refusal has disabled keys: routes may have other keys now.
keys_disabled = Signal()
KEY_USE_INTERVAL = timedelta(minutes=1)
MAX_REASON = 200  # characters
OWN_LABEL = "own key of user "  # followed by the user's primary key


#: Columns that determine whether a key may be used.
_STATE = frozenset({"state", "rest_until", "state_reason", "model_rests"})


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def of_staff(self) -> ApiKeyQuerySet:
        """Keys that staff entered, for everybody or for a group."""
        return self.filter(owner=None)

    def usable(self, now: datetime | None = None) -> ApiKeyQuerySet:
        """Keys that may be used now."""
        State = ApiKey.State
        now = now or timezone.now()
        rested = Q(state=State.RESTING, rest_until__lte=now)
        return self.unexpired(now).filter(Q(state=State.ACTIVE) | rested)

    def unexpired(self, now: datetime | None = None) -> ApiKeyQuerySet:
        """Keys that may be used now, or once they have rested."""
        now = now or timezone.now()
        return self.filter(
            Q(expires_at=None) | Q(expires_at__gt=now),
            Q(drains_at=None) | Q(drains_at__gt=now),
            weight__gt=0,
        ).exclude(state=ApiKey.State.DISABLED)

    def auto_disabled(self) -> ApiKeyQuerySet:
        """Keys disabled because the provider rejected them; staff have to act."""
        disabled = self.filter(state=ApiKey.State.DISABLED).exclude(state_reason="")
        return disabled.select_related("provider")

    # Changes after a provider's response. Each returns the number of changed rows.

    def rest(self, until: datetime, reason: str, now: datetime) -> int:
        """Do not use these keys before `until`. A longer rest is not shortened."""
        State = ApiKey.State
        shorter = Q(rest_until=None) | Q(rest_until__lt=until) | ~Q(state=State.RESTING)
        return (
            self.exclude(state=State.DISABLED)
            .filter(shorter)
            .update(
                state=State.RESTING,
                rest_until=until,
                state_reason=reason[:MAX_REASON],
                state_changed_at=now,
            )
        )

    def disable(self, reason: str, now: datetime) -> int:
        """Do not use these keys until staff enable them again."""
        enabled = self.exclude(state=ApiKey.State.DISABLED)
        pks = list(enabled.values_list("pk", flat=True))
        changed = enabled.filter(pk__in=pks).update(
            state=ApiKey.State.DISABLED,
            rest_until=None,
            state_reason=reason[:MAX_REASON],
            state_changed_at=now,
        )
        if changed:
            keys_disabled.send(ApiKey, pks=pks, reason=reason[:MAX_REASON])
        return changed

    @transaction.atomic
    def rest_for_model(
        self, model: str, until: datetime, reason: str, now: datetime
    ) -> int:
        """Do not use these keys for this model before `until`."""
        rest = {"until": until.isoformat(), "reason": reason[:MAX_REASON]}
        keys = list(self.select_for_update())
        for key in keys:
            key.model_rests = {**key.model_rests_after(now), model: rest}
            key.state_changed_at = now
            columns = ["model_rests", "state_changed_at"]
            super(ApiKey, key).save(update_fields=columns)
        return len(keys)

    def note_use(self, now: datetime, error: str) -> None:
        """Store the last use, at most once a minute unless the error changes.

        More writes would make concurrent calls wait for the lock on their key's row.
        """
        before = Q(last_used_at=None) | Q(last_used_at__lt=now - KEY_USE_INTERVAL)
        due = self.filter(before | ~Q(last_error=error))
        due.update(last_used_at=now, last_error=error)


class StaffKeys(models.Manager.from_queryset(ApiKeyQuerySet)):  # type: ignore[misc]
    """All keys but people's own: code that lists, tests or sends a provider's keys gets
    a person's own key only through `ApiKey.every`."""

    def get_queryset(self) -> ApiKeyQuerySet:
        keys: ApiKeyQuerySet = super().get_queryset()
        return keys.of_staff()


class ApiKey(SecretRow):
    class State(models.TextChoices):
        ACTIVE = "active", _("active")
        RESTING = "resting", _("resting")
        DISABLED = "disabled", _("disabled")

    provider = models.ForeignKey(Provider, models.CASCADE, related_name="keys")
    label = models.CharField(max_length=100, default="default")
    hint = models.CharField(max_length=MAX_HINT, blank=True, editable=False)
    secret = EncryptedTextField(
        _("key"),
        hint_field="hint",
        validators=[
            RegexValidator(
                r"\A[\x21-\x7e]+\Z",
                _("A key cannot contain spaces or non-ASCII characters."),
            )
        ],
        help_text=_(
            "Stored encrypted and never shown; leave empty to keep the stored key."
            " “env:NAME” or “file:/run/secrets/name” is read at each use instead."
        ),
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.ACTIVE)
    weight = models.PositiveSmallIntegerField(
        default=1,
        help_text=_("Share of the provider's calls that this key gets; 0 means none."),
    )
    rest_until = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text=_("No call uses the key from then on; empty means never."),
    )
    drains_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text=_(
            "From then on the key gets no new calls, and running ones end with it."
        ),
    )
    fingerprint = models.CharField(
        max_length=16,
        blank=True,
        editable=False,
        default="",
        db_default="",
        help_text=_(
            "Beginning of the key's SHA-256, by which copies of it are recognised."
        ),
    )
    added_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
    )
    #: `{name: {"until": ISO time, "reason": text}}`, by the provider's model names.
    model_rests = models.JSONField(
        _("resting for models"), null=True, blank=True, editable=False
    )
    state_reason = models.CharField(
        max_length=MAX_REASON,
        blank=True,
        editable=False,
        default="",
        db_default="",
        help_text=_(
            "Reason for the automatic pause or disabling; empty if staff changed the"
            " state."
        ),
    )
    #: Of a process's cached state and the stored state of a key, the later one counts.
    state_changed_at = models.DateTimeField(null=True, blank=True, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        editable=False,
        related_name="own_keys",
        help_text=_("The person whose own key it is; nobody else's calls use it."),
    )
    group = models.ForeignKey(
        Group,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text=_(
            "Only the calls of this group's members use the key, instead of the keys"
            " for everybody."
        ),
    )
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=200, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = StaffKeys()  # the default, also of `provider.keys`
    every = ApiKeyQuerySet.as_manager()

    class Meta:
        ordering = ["provider", "label"]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "label"], name="llm_key_label_once_per_provider"
            ),
            models.UniqueConstraint(
                fields=["provider", "owner"],
                condition=Q(owner__isnull=False),
                name="own_key_once",
            ),
        ]
        verbose_name = _("API key")

    def __str__(self) -> str:
        return f"{self.label} {self.hint}".strip()

    def save(self, *args: Any, update_fields: Any = None, **kwargs: Any) -> None:
        if isinstance(self.secret, Secret) and self.secret.hint:  # newly entered
            with suppress(SecretUnavailable):
                text = self.secret.reveal_for(self.secret.origin or "")
                self.fingerprint = fingerprint_of(text)
                if self.owner_id is None:
                    self.hint = hint_of_reference(text) or self.hint
        if update_fields is None or _STATE & {*update_fields}:
            self.state_changed_at = timezone.now()
        if update_fields is not None:
            update_fields = {*update_fields}
            if "secret" in update_fields:
                update_fields |= {"hint", "fingerprint"}
            update_fields |= {"state_changed_at"} if _STATE & update_fields else set()
        super().save(*args, update_fields=update_fields, **kwargs)

    def secret_origin(self, column: str) -> str:
        return self.provider.origin

    def bind_older_to(self, origin: str) -> None:
        """Bind a secret that is stored in the older form `f1:`, without an origin."""
        stored = self.__dict__["secret"]
        if is_unbound(stored):
            with suppress(SecretUnavailable):  # an unreadable secret stays as it is
                binding = replace(binding_of(_SECRET, self), origin=origin)
                self.__dict__["secret"] = bound = stored.bind(binding)
                replace_stored(_SECRET, self.pk, stored, bound)

    def enter(self, text: str, origin: str) -> None:
        """Set the key for this origin.

        While the provider has another origin, the key is not sent until it is entered
        again for that origin.
        """
        binding = binding_of(_SECRET, self)
        secret = Secret.seal(text, replace(binding, origin=origin))
        self.secret, self.hint = secret, secret.hint

    @property
    def entered_for(self) -> str | None:
        """The origin that the key is bound to; None without a key or a binding."""
        try:
            return self.secret.origin if self.secret else None
        except SecretUnavailable:
            return None

    @property
    def secrets_not_sent(self) -> list[str]:
        return list(filter(None, [self.why_not_sent]))

    def is_entered_for(self, text: str, origin: str) -> bool:
        """Whether `text` is stored for `origin`, whatever the provider's origin is."""
        try:
            return bool(self.secret) and self.secret.reveal_for(origin) == text
        except SecretUnavailable:
            return False

    @property
    def why_not_sent(self) -> str:
        """A sentence for staff; "" if the key is sent."""
        return why_not_sent(self.secret, self.provider.origin)

    def clean_fields(self, exclude: Any = None) -> None:
        if isinstance(self.secret, Secret) and self.secret.is_new:
            entered = self.secret.reveal()
            if (compact := compact_key(entered)) != entered:
                self.secret = compact
        super().clean_fields(exclude)

    def clean(self) -> None:
        super().clean()
        if isinstance(self.secret, Secret) and self.secret.is_new:
            self._check_reference(self.secret.reveal())
        if self.owner_id is None and self.label.startswith(OWN_LABEL):
            # The check of the labels does not see people's own keys.
            raise ValidationError(
                _("Labels that start with “%(start)s” are for people's own keys."),
                params={"start": OWN_LABEL.strip()},
            )

    def _check_reference(self, text: str) -> None:
        """Raises ValidationError."""
        if not is_reference(text):
            return
        if self.owner_id is not None:
            raise ValidationError({"secret": _("Enter the key itself.")})
        try:
            read_reference(text)
        except ReferenceRefused as exc:
            raise ValidationError({"secret": str(exc)}) from exc

    def enable(self) -> None:
        """Make the key usable again and delete all reasons against it."""
        self.forget_refusals()
        self.save(update_fields=_STATE)

    def forget_refusals(self) -> None:
        """As `enable`, without saving."""
        self.state, self.rest_until = self.State.ACTIVE, None
        self.state_reason, self.model_rests = "", None

    @property
    def ends_at(self) -> datetime | None:
        """When the key expires or begins to drain, whichever is first."""
        ends = [at for at in (self.expires_at, self.drains_at) if at is not None]
        return min(ends, default=None)

    @property
    def has_ended(self) -> bool:
        return self.ends_at is not None and self.ends_at <= timezone.now()

    @property
    def reference(self) -> str:
        """`env:NAME` or `file:/path` if the key is read there at use, else ""."""
        try:
            text = self.secret.reveal_for(self.entered_for or "") if self.secret else ""
        except SecretUnavailable:
            return ""
        return text if self.owner_id is None and is_reference(text) else ""

    @property
    def shown_hint(self) -> str:
        """The hint; of a reference that an older version stored with a masked one, the
        reference."""
        return hint_of_reference(self.reference) or self.hint

    @property
    def is_disabled_automatically(self) -> bool:
        return self.state == self.State.DISABLED and bool(self.state_reason)

    @property
    def has_no_credit(self) -> bool:
        """Whether the key is not used because its account has no credit left."""
        is_resting = self.rest_until is not None and self.rest_until > timezone.now()
        is_unused = self.state == self.State.DISABLED or is_resting
        return is_unused and self.state_reason.startswith(f"{QuotaExhausted.code}:")

    def model_rests_after(self, now: datetime) -> dict[str, dict[str, str]]:
        """The rests for single models that last beyond `now`."""
        rests = self.model_rests or {}
        return {
            model: rest
            for model, rest in rests.items()
            if datetime.fromisoformat(rest["until"]) > now
        }

    def is_current_key(self, text: str) -> bool:
        """Whether `text` is the key that is sent.

        False if the stored key cannot be decrypted for the provider's origin.
        """
        try:
            return bool(self.secret) and self.secret.reveal() == text
        except SecretUnavailable:
            return False


class OwnKeys(models.Manager["OwnKey"]):
    def get_queryset(self) -> models.QuerySet[OwnKey]:
        return super().get_queryset().exclude(owner=None)


class OwnKey(ApiKey):
    """A person's own key, for the admin: staff see and delete it, and never use it."""

    # A proxy may have another default manager; the stubs do not know that.
    objects = OwnKeys()  # type: ignore[misc, assignment]

    class Meta:
        proxy = True
        verbose_name = _("own key of a person")
        verbose_name_plural = _("own keys of people")


_SECRET = cast(EncryptedTextField, ApiKey._meta.get_field("secret"))

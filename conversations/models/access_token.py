"""Access tokens of the API: their scopes, limits and validity."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.audit.watch import merged
from conversations.models.limits.conversation_limit import (
    ConversationLimit,
    find_foreign,
)
from llm.db.statements import CompiledQuery, CompiledRows
from llm.models import LanguageModel
from llm.wire.facades.common_shape import MAX_CACHE_SECONDS
from tools.runtime_tool import NAME

LOG_DURATION = timedelta(hours=24)  # of a request log, and of its rows
USE_INTERVAL = timedelta(minutes=1)  # between two writes of `last_used_at`
NANOS_PER_DOLLAR = 10**9  # per US dollar; integers of billionths add up exactly


class Scope(models.TextChoices):
    CHAT = "chat", _("Conversations (REST)")
    GATEWAY = "gateway", _("Models, through the gateway for SDKs (/v1)")
    TOOLS = "tools", _("Tools and tool calls, without conversations")
    APPROVE = "approve", _("Approve tool calls and answer questions")
    ADMIN_READ = "admin-read", _("Statistics of all users, for staff")
    SCIM = "scim", _("Accounts and groups, for a provisioning program (SCIM)")


def usual_scopes() -> list[str]:
    return [Scope.CHAT.value, Scope.GATEWAY.value]


def validate_scopes(value: Any) -> None:
    if not isinstance(value, list) or not value:
        raise ValidationError(_("Choose at least one scope."), code="no_scope")
    for name in value:
        if name not in Scope.values:
            known = ", ".join(Scope.values)
            raise ValidationError(
                _("There is no scope %(name)s; use one of %(known)s."),
                code="unknown_scope",
                params={"name": name, "known": known},
            )


def validate_networks(value: Any) -> None:
    if not isinstance(value, list):
        raise ValidationError(_("Enter a list of addresses."), code="no_list")
    for each in value:
        try:
            # `ip_network` accepts integers, and True as the address 0.0.0.1.
            ipaddress.ip_network(each if isinstance(each, str) else "")
        except ValueError as exc:
            raise ValidationError(
                _(
                    "%(why)s. Write an address or a network, such as 192.0.2.7,"
                    " 192.0.2.0/24 or 2001:db8::/32."
                ),
                code="no_network",
                params={"why": str(exc)},
            ) from exc


_ORIGIN = re.compile(r"(?:https?|[a-z][a-z0-9+.-]*)://[^\s/?#@]{1,253}")


def validate_origins(value: str) -> None:
    for each in value.split():
        if each != "*" and not _ORIGIN.fullmatch(each.lower()):
            raise ValidationError(
                _("%(origin)s is no origin, such as https://app.example.org."),
                code="no_origin",
                params={"origin": each[:100]},
            )


def validate_tool_names(value: str) -> None:
    for each in value.split():
        if not NAME.match(each):
            raise ValidationError(
                _("%(name)s is no name of a tool."),
                code="no_tool",
                params={"name": each[:100]},
            )


_CONVERSATION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FOLDER_ID = re.compile(r"[0-9]{1,18}")


def validate_conversation_ids(value: str) -> None:
    for each in value.split():
        if not _CONVERSATION_ID.fullmatch(each):
            raise ValidationError(
                _("%(id)s is no id of a conversation."),
                code="no_conversation",
                params={"id": each[:100]},
            )


def validate_folder_ids(value: str) -> None:
    for each in value.split():
        if not _FOLDER_ID.fullmatch(each):
            raise ValidationError(
                _("%(id)s is no id of a folder."),
                code="no_folder",
                params={"id": each[:100]},
            )


class AccessTokenQuerySet(models.QuerySet["AccessToken"]):
    def find(self, token: str) -> AccessToken | None:
        """The live token with this text, with its user."""
        rows = _LIVE_TOKEN.rows(AccessToken.digest_of(token), timezone.now())
        if not rows:
            return None
        [row] = rows
        found = _LIVE_TOKEN.create_instance(row)
        if not row[-1]:  # its list of models is empty, so there is nothing to read
            found.model_ids = frozenset()
        if found.allowed_conversations or found.allowed_folders:
            user: Any = found.user
            user.conversation_limit = found.conversation_limit
        return found

    def live(self, now: datetime | None = None) -> AccessTokenQuerySet:
        """Tokens that are neither revoked nor expired, of active users."""
        now = now or timezone.now()
        lasts = models.Q(expires_at=None) | models.Q(expires_at__gt=now)
        return self.filter(lasts, revoked_at=None, user__is_active=True)


class AccessToken(models.Model):
    """A program's key to the API; only its digest is stored."""

    class Period(models.TextChoices):
        TOTAL = "total", _("in all")
        DAY = "day", _("a day")
        MONTH = "month", _("a month")

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="access_tokens"
    )
    label = models.CharField(max_length=100, default="token")
    prefix = models.CharField(max_length=16, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    scopes = models.JSONField(
        default=usual_scopes,
        validators=[validate_scopes],
        help_text=_("The APIs that the token may use."),
    )
    allowed_models = models.ManyToManyField(
        LanguageModel,
        blank=True,
        related_name="+",
        help_text=_(
            "Models that the token may use; if none is chosen, all models of its user."
        ),
    )
    #: Names, not rows: if a list of rows lost its last one, it would allow all tools.
    allowed_tools = models.TextField(
        _("tools"),
        blank=True,
        default="",
        db_default="",
        validators=[validate_tool_names],
        help_text=_(
            "Tools of this server that the token may use; if none is chosen, all tools"
            " of its user."
        ),
    )
    #: Ids, not rows, for the same reason.
    allowed_conversations = models.TextField(
        _("conversations"),
        blank=True,
        default="",
        db_default="",
        validators=[validate_conversation_ids],
        help_text=_(
            "Conversations of its user that the token may read, continue and delete; if"
            " neither a conversation nor a folder is chosen, all."
        ),
    )
    allowed_folders = models.TextField(
        _("folders"),
        blank=True,
        default="",
        db_default="",
        validators=[validate_folder_ids],
        help_text=_(
            "Folders of its user: the token may read, continue and delete their"
            " conversations, and add new ones."
        ),
    )
    networks = models.JSONField(
        default=list,
        blank=True,
        validators=[validate_networks],
        help_text=_(
            "Client addresses that may use the token; empty means any address."
        ),
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1)]
    )
    tokens_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Input and output tokens together."),
    )
    budget = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal(0))],
        help_text=_("USD; empty means no limit."),
    )
    budget_period = models.CharField(
        max_length=5, choices=Period.choices, default=Period.TOTAL
    )
    declares_any_tool = models.BooleanField(
        _("declares any tool"),
        default=False,
        db_default=False,
        help_text=_(
            "Requests with this token may declare tools of every kind, even kinds that"
            " the user's groups may not declare. Tokens created before this setting"
            " existed have it switched on."
        ),
    )
    cache_seconds = models.PositiveIntegerField(
        _("cache answers for"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(MAX_CACHE_SECONDS)],
        help_text=_(
            "Seconds that the answer to a request is stored and used for equal requests"
            " of the same user; 0 never, empty as the model has it."
        ),
    )
    stores_responses = models.BooleanField(
        _("stores responses"),
        default=True,
        db_default=True,
        help_text=_(
            "Whether responses of the gateway are stored as conversations if a request"
            " says nothing of it (store)."
        ),
    )
    allowed_origins = models.TextField(
        _("origins"),
        blank=True,
        default="",
        db_default="",
        validators=[validate_origins],
        help_text=_(
            "Origins of web pages whose scripts may use the token, one per line, such"
            " as https://app.example.org; * for any. Empty: programs only."
        ),
    )
    logs_requests_until = models.DateTimeField(
        _("logs requests until"), null=True, blank=True, editable=False
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AccessTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.label} {self.prefix}…"

    # Creation

    @staticmethod
    def digest_of(token: str) -> str:
        # 256 random bits need no slow hash.
        return hashlib.sha256(token.encode()).hexdigest()

    @classmethod
    def issue(
        cls,
        user: Any,
        label: str,
        expires_at: datetime | None = None,
        *,
        allowed_models: Collection[LanguageModel] = (),
        **limits: Any,
    ) -> tuple[AccessToken, str]:
        """Create a token; return the row and the token text, which is not stored."""
        row = cls(user=user, label=label, expires_at=expires_at, **limits)
        token = row.generate_token()
        with transaction.atomic(), merged():
            row.save()
            row.allowed_models.set(allowed_models)
        return row, token

    def generate_token(self) -> str:
        """Generate the token of an unsaved row, which stores its prefix and digest."""
        token = f"parley_{secrets.token_urlsafe(32)}"
        self.prefix, self.digest = token[:12], self.digest_of(token)
        return token

    # Validity

    def note_use(self) -> None:
        now = timezone.now()
        if self.last_used_at is None or self.last_used_at < now - USE_INTERVAL:
            self.last_used_at = now
            self.save(update_fields=["last_used_at"])

    def revoke(self) -> None:
        """Revoke the token; a second revocation does not change the time."""
        if self.revoked_at is None:
            self.revoked_at = timezone.now()
            self.save(update_fields=["revoked_at"])

    @property
    def is_live(self) -> bool:
        lasts = self.expires_at is None or self.expires_at > timezone.now()
        return lasts and self.revoked_at is None

    def log_requests(self, *, on: bool) -> None:
        """Switch the request log on, for `LOG_DURATION`, or off."""
        self.logs_requests_until = timezone.now() + LOG_DURATION if on else None
        self.save(update_fields=["logs_requests_until"])

    @property
    def logs_requests(self) -> bool:
        until = self.logs_requests_until
        return until is not None and until > timezone.now()

    @cached_property
    def origins(self) -> frozenset[str]:
        """Origins of pages that may use the token, in lower case; "*" for any."""
        return frozenset(self.allowed_origins.lower().split())

    # Permissions

    def has_scope(self, *names: str) -> bool:
        """Whether the token has at least one of these scopes."""
        return not set(names).isdisjoint(self.scopes)

    @cached_property
    def model_ids(self) -> frozenset[int]:
        """Keys of the models that it may use; empty for all. One query, cached."""
        return frozenset(pk for (pk,) in _MODEL_IDS.rows(self.pk))

    @staticmethod
    def model_list_of(token_id: str) -> models.Exists:
        """Whether a token has a list of models; `token_id`: the column with its key."""
        listed = AccessToken.allowed_models.through.objects.filter(
            accesstoken_id=models.OuterRef(token_id)
        )
        return models.Exists(listed)

    def may_use_model(self, model_id: int | None) -> bool:
        return not self.model_ids or model_id in self.model_ids

    @property
    def tool_names(self) -> frozenset[str]:
        """Names of our tools that it may use; empty for all."""
        return frozenset(self.allowed_tools.split())

    def may_use_tool(self, name: str) -> bool:
        return not self.tool_names or name in self.tool_names

    @property
    def conversation_limit(self) -> ConversationLimit | None:
        """None if it may reach all conversations of its user."""
        conversations = frozenset(self.allowed_conversations.split())
        folders = frozenset(map(int, self.allowed_folders.split()))
        if not (conversations or folders):
            return None
        return ConversationLimit(self.pk, conversations, folders)

    def clean(self) -> None:
        """Raises ValidationError for conversations and folders that are newly listed
        and not its user's."""
        super().clean()
        before = AccessToken.objects.filter(pk=self.pk)
        listed = before.values_list("allowed_conversations", "allowed_folders").first()
        known = [set(text.split()) for text in listed or ("", "")]
        texts = (self.allowed_conversations, self.allowed_folders)
        try:
            validate_conversation_ids(texts[0])
            validate_folder_ids(texts[1])
        except ValidationError:
            return  # the field's own check reports it
        new = [set(text.split()) - old for text, old in zip(texts, known, strict=True)]
        if any(new) and (foreign := find_foreign(self.user_id, *new)):
            is_folder = foreign[0] in new[1]
            problem = ValidationError(
                _("%(id)s is no conversation or folder of this user."),
                code="foreign",
                params={"id": foreign[0]},
            )
            field = "allowed_folders" if is_folder else "allowed_conversations"
            raise ValidationError({field: problem})

    @property
    def is_limited(self) -> bool:
        """Whether it may use or reach less than its user, or spend less."""
        lists = self.model_ids or self.tool_names or self.conversation_limit
        return self.is_metered or bool(lists)

    # Budget

    @property
    def is_metered(self) -> bool:
        return self.budget is not None or bool(self.tokens_per_minute)

    @property
    def budget_nanos(self) -> int | None:
        return None if self.budget is None else int(self.budget * NANOS_PER_DOLLAR)

    def period(self) -> str:
        """The name of the current budget period: a day, a month or "total"."""
        today = timezone.localdate()
        match self.budget_period:
            case self.Period.DAY:
                return today.isoformat()
            case self.Period.MONTH:
                return f"{today:%Y-%m}"
        return "total"


def is_within(address: str, networks: Iterable[str]) -> bool:
    """False for a string that is not an IP address, such as a Unix socket's."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    # A dual-stack socket reports 192.0.2.7 as ::ffff:192.0.2.7.
    mapped = getattr(found, "ipv4_mapped", None)
    found = mapped or found
    return any(found in ipaddress.ip_network(each) for each in networks)


_LIVE_TOKEN = CompiledQuery[AccessToken](
    lambda digest, now: (
        AccessToken.objects.filter(digest=digest)
        .live(now)
        .annotate(has_model_list=AccessToken.model_list_of("pk"))
    ),
    "a digest",
    datetime(1970, 1, 2, tzinfo=UTC),
    related=("user",),
    beside=("has_model_list",),
)
_MODEL_IDS = CompiledRows(
    lambda token: AccessToken.allowed_models.through.objects.filter(
        accesstoken_id=token
    ).values_list("languagemodel_id"),
    -1,
)


def note_limited_tokens(sender: Any, instance: LanguageModel, **_: Any) -> None:
    """A receiver of `pre_delete`: the tokens whose list of models names this one."""
    listed = AccessToken.objects.filter(allowed_models=instance)
    instance.limited_tokens = list(listed)  # type: ignore[attr-defined]


def revoke_unlimited_tokens(sender: Any, instance: LanguageModel, **_: Any) -> None:
    """A receiver of `post_delete`: a token whose list has become empty would be allowed
    all models of its user."""
    for token in getattr(instance, "limited_tokens", ()):
        if not token.allowed_models.exists():
            token.revoke()

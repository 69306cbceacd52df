"""Presets of conversations, and the context sources that presets use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.signals import m2m_changed
from django.dispatch import receiver
from django.utils.translation import gettext_lazy as _

from conversations import context
from conversations.input.checks import InputError
from conversations.input.items import options_of
from conversations.models.staff.preset_content import PresetContent
from llm.db.secret_headers import SecretHeaders
from llm.errors import BadRequest
from llm.models import LanguageModel
from tools.http.exchange import MAX_BODY, Limits
from tools.http.request_template import RequestTemplate
from tools.http.result import ReadOptions
from tools.http.validation import find_problems, header_problems, parse_networks
from tools.mcp.server_spec import ServerSpec
from tools.models import Tool
from tools.models.mcp_server import McpServer
from tools.validators import validate_headers, validate_networks

MAX_SIZE = 20_000  # bytes of a source's text, by default
LARGEST_SIZE = 1024 * 1024
TIMEOUT = 5.0  # seconds
LONGEST_TIMEOUT = 60.0
LONGEST_CACHE = 24 * 60 * 60  # seconds

#: Kinds of a turn's notes: context in its prompt, and a source that was left out.
NOTE_CONTEXT, NOTE_CONTEXT_FAILED = "context", "context.failed"


class PresetNotAvailable(BadRequest):
    """This conversation's preset is not available any more; choose another one, or
    none."""

    code, status = "E_PRESET_NOT_AVAILABLE", 404

    def __init__(self) -> None:
        super().__init__(" ".join((self.__doc__ or "").split()))


class ContextSource(SecretHeaders):
    """A source of text that is added to the prompt of a conversation."""

    class Kind(models.TextChoices):
        TEXT = "text", _("text")
        PYTHON = "python", _("Python function")
        HTTP = "http", _("HTTP")
        MCP = "mcp", _("MCP resource")

    name = models.SlugField(
        max_length=64,
        unique=True,
        help_text=_("Name that models and configuration files use."),
    )
    title = models.CharField(
        max_length=100, help_text=_("Heading above the text in the prompt.")
    )
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.TEXT)
    enabled = models.BooleanField(default=True)
    on_demand = models.BooleanField(
        default=False,
        help_text=_(
            "The text is not in the prompt; the model reads it with the tool"
            " “get_context”."
        ),
    )
    text = models.TextField(blank=True)
    function = models.CharField(
        max_length=200,
        blank=True,
        help_text=_("Import path of the function, such as shop.context.customer."),
    )
    url = models.CharField(
        _("URL"),
        max_length=2000,
        blank=True,
        help_text=_(
            "The path may contain {user_id}, {username} and {conversation_id}. Put"
            " secrets into a secret header, not here."
        ),
    )
    headers = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_headers],
        help_text=_(
            "Sent with each request. Put secrets into the secret headers, not here."
        ),
    )
    mcp_server = models.ForeignKey(
        McpServer,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("MCP server"),
    )
    uri = models.CharField(
        _("URI"),
        max_length=2000,
        blank=True,
        help_text=_("URI of the resource, as the MCP server lists it."),
    )
    pointer = models.CharField(
        max_length=500,
        blank=True,
        validators=[RegexValidator(r"\A/", _("Write a pointer such as /data/items."))],
        help_text=_(
            "JSON Pointer to the part of the response that is used, such as"
            " /data/items; empty for all of it."
        ),
    )
    networks = models.TextField(
        _("allowed networks"),
        blank=True,
        validators=[validate_networks],
        help_text=_(
            "Private networks that requests may reach, one per line, such as"
            " 10.1.0.0/16; the public internet is always allowed."
        ),
    )
    max_size = models.PositiveIntegerField(
        _("size limit"),
        default=MAX_SIZE,
        validators=[MinValueValidator(1), MaxValueValidator(LARGEST_SIZE)],
        help_text=_("Maximum size of the text in bytes; a larger text is left out."),
    )
    timeout = models.FloatField(
        default=TIMEOUT,
        validators=[MinValueValidator(0.1), MaxValueValidator(LONGEST_TIMEOUT)],
        help_text=_(
            "Maximum time in seconds; the model call waits until the text is there."
        ),
    )
    cache_seconds = models.PositiveIntegerField(
        default=0,
        validators=[MaxValueValidator(LONGEST_CACHE)],
        help_text=_(
            "Seconds for which a text is cached; 0 reads the source for each turn."
        ),
    )
    groups = models.ManyToManyField(
        Group,
        blank=True,
        related_name="+",
        help_text=_(
            "Groups whose members' conversations get the text; empty for everybody's."
        ),
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        permissions = [("try_contextsource", "Can try a context source as any user")]

    def __str__(self) -> str:
        return self.title or self.name

    def clean(self) -> None:
        self.headers = self.headers or {}
        wrong: dict[str, list[Any]] = {}
        for name, problem in self._problems():
            wrong.setdefault(name, []).append(problem)
        if wrong:
            raise ValidationError(wrong)

    def _problems(self) -> Iterator[tuple[str, Any]]:
        match self.kind:
            case self.Kind.TEXT if not self.text.strip():
                yield "text", _("Write the text.")
            case self.Kind.PYTHON if self.function not in context.source_functions():
                known = ", ".join(sorted(context.source_functions()))
                yield (
                    "function",
                    _("There is no such function; choose one of: %s.") % known
                    if known
                    else _("No app provides a context function; see docs/context.md."),
                )
            case self.Kind.HTTP:
                yield from self._http_problems()
            case self.Kind.MCP:
                if self.mcp_server is None:
                    yield "mcp_server", _("Choose the server.")
                if not self.uri:
                    yield "uri", _("Write the URI of the resource.")

    def _http_problems(self) -> Iterator[tuple[str, Any]]:
        if not self.url:
            yield "url", _("Write a URL such as https://host/things.")
            return
        if any(header_problems(self.headers)):
            return  # the field's validator reports them
        if unknown := set(self.definition.placeholders) - set(context.PLACEHOLDERS):
            names = ", ".join(f"{{{name}}}" for name in context.PLACEHOLDERS)
            params = {"unknown": f"{{{min(unknown)}}}", "known": names}
            yield "url", _("%(unknown)s is unknown; use %(known)s.") % params
            return
        placeholders = self.definition.placeholders
        schema = {
            "properties": {name: {} for name in placeholders},
            "required": placeholders,
        }
        yield from find_problems(self.definition, schema, self.secret_names)

    @property
    def definition(self) -> RequestTemplate:
        return RequestTemplate(method="GET", url=self.url, headers=self.headers)

    def to_trial_source(self) -> context.LoadedSource:
        """The source for a trial in the admin: no cache and no shared connection."""
        source = replace(self.to_source(), cache_seconds=0, version=uuid4().hex)
        if isinstance(source.read, context.McpRead):
            source = replace(source, read=replace(source.read, shared=False))
        return source

    def to_source(self) -> context.LoadedSource:
        """The source as a turn reads it."""
        return context.LoadedSource(
            name=self.name,
            title=self.title,
            read=self._reading(),
            max_size=self.max_size,
            timeout=self.timeout,
            cache_seconds=0 if self.kind == self.Kind.TEXT else self.cache_seconds,
            version=f"{self.pk} {self.updated_at}",
            varies=self._varies(),
            on_demand=self.on_demand,
        )

    def _reading(self) -> Any:
        match self.kind:
            case self.Kind.PYTHON:
                return context.FunctionRead(self.function)
            case self.Kind.HTTP:
                # `max_size` limits the part that the pointer selects, not the body.
                size = max(self.max_size, MAX_BODY) if self.pointer else self.max_size
                return context.HttpRead(
                    definition=self.definition,
                    reading=ReadOptions(pointer=self.pointer),
                    # One second more, so that the source's own timeout expires first
                    # and is the one in the error message.
                    limits=Limits(size=size, total=self.timeout + 1),
                    networks=parse_networks(self.networks)[0],
                    secret_headers=self.secret_headers or None,
                )
            case self.Kind.MCP:
                return context.McpRead(server=self._server(), uri=self.uri)
            case _:
                return context.TextRead(self.text)

    def _server(self) -> ServerSpec | None:
        row = self.mcp_server
        try:
            return row.spec if row and row.enabled else None
        except LookupError:  # the settings do not name its program any more
            return None

    def _varies(self) -> tuple[str, ...]:
        if self.kind == self.Kind.PYTHON:
            return context.PLACEHOLDERS
        if self.kind != self.Kind.HTTP:
            return ()
        placeholders = self.definition.placeholders
        return tuple(name for name in context.PLACEHOLDERS if name in placeholders)


class PresetQuerySet(models.QuerySet["Preset"]):
    def available_to(self, user: Any) -> PresetQuerySet:
        """Presets that `user` may choose. `user=None` is for internal use: all."""
        rows = self.filter(enabled=True)
        if user is None or user.is_superuser:
            return rows
        restricted = Preset.groups.through.objects.filter(preset=OuterRef("pk"))
        if user.pk is None:  # an anonymous user
            return rows.filter(~Exists(restricted))
        return rows.filter(
            ~Exists(restricted) | Exists(restricted.filter(group__user=user.pk))
        )

    def default_for(self, user: Any) -> Preset | None:
        """The preset of a new conversation of `user` that does not name one."""
        return self.available_to(user).filter(is_default=True).first()


class Preset(PresetContent):
    """A named set of instructions, model, options, tools and context sources."""

    name = models.SlugField(
        max_length=64, unique=True, help_text=_("Name that programs use.")
    )
    label = models.CharField(
        max_length=100,
        blank=True,
        help_text=_("Label that people see; empty for the name."),
    )
    description = models.CharField(
        max_length=500, blank=True, help_text=_("Shown where people choose a preset.")
    )
    enabled = models.BooleanField(
        default=True,
        help_text=_(
            "If switched off, conversations with this preset accept no more messages."
        ),
    )
    is_default = models.BooleanField(
        default=False,
        help_text=_("Preset of new conversations for which none was chosen."),
    )
    instructions = models.TextField(
        blank=True,
        help_text=_(
            "System prompt for conversations without their own; empty for the site's"
            " prompt."
        ),
    )
    language_model = models.ForeignKey(
        LanguageModel,
        models.SET_NULL,
        null=True,
        blank=True,
        help_text=_(
            "Model of new conversations for which none was chosen; empty means the"
            " default model."
        ),
    )
    options = models.JSONField(
        default=dict,
        blank=True,
        help_text=_(
            "Options for every turn; options of the conversation or turn take"
            " precedence."
        ),
    )
    tools = models.ManyToManyField(
        Tool,
        blank=True,
        help_text=_("Tools that conversations with this preset may use."),
    )
    only_named_tools = models.BooleanField(
        default=False,
        help_text=_(
            "Allow only the chosen tools, and none if none is chosen. Choosing a tool"
            " switches this on."
        ),
    )
    sources = models.ManyToManyField(
        ContextSource, through="PresetSource", blank=True, related_name="presets"
    )
    groups = models.ManyToManyField(
        Group, blank=True, help_text=_("Groups that may use it; empty means everybody.")
    )
    owner_group = models.ForeignKey(
        Group,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="owned_presets",
        help_text=_(
            "Staff in this group may change what the preset does, without other rights"
            " in the admin."
        ),
    )
    version = models.PositiveIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text=_("Number of its newest version."),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = PresetQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        permissions = [
            (
                "publish_unevaluated",
                "Can publish a preset without its evaluation",
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"],
                condition=Q(is_default=True),
                name="conversations_one_default_preset",
            )
        ]

    def __str__(self) -> str:
        return self.label or self.name

    @transaction.atomic
    def save(self, *args: Any, **kwargs: Any) -> None:
        """Saving a default preset removes the flag from the previous default."""
        if self.is_default:
            others = Preset.objects.filter(is_default=True).exclude(pk=self.pk)
            others.update(is_default=False)
        super().save(*args, **kwargs)

    def validate_constraints(self, exclude: Any = None) -> None:
        # A second default is not an error: `save` removes the flag from the first.
        super().validate_constraints({*(exclude or ()), "is_default"})

    def clean(self) -> None:
        try:
            self.options = options_of(self.options or {})
        except InputError as exc:
            raise ValidationError({"options": str(exc)}) from exc

    def access(self) -> dict[str, Any]:
        """Who may use it, and as what: the part of its state that is not content."""
        return {
            "name": self.name,
            "enabled": self.enabled,
            "is_default": self.is_default,
            "groups": sorted(self.groups.values_list("name", flat=True)),
            "owner_group": self.owner_group.name if self.owner_group else None,
        }


@receiver(m2m_changed, sender=Preset.tools.through)
def _restrict_to_named_tools(
    instance: Any, action: str, reverse: bool, **kwargs: Any
) -> None:
    """Set `only_named_tools` when tools are added to a preset.

    So the preset stays restricted after its last named tool is deleted.
    """
    if action != "post_add":
        return
    if reverse:  # the relation was changed from the tool's side
        instance.preset_set.update(only_named_tools=True)
        return
    instance.only_named_tools = True
    Preset.objects.filter(pk=instance.pk).update(only_named_tools=True)


class PresetSource(models.Model):
    """A context source of a preset, with its position in the preset's order."""

    preset = models.ForeignKey(Preset, models.CASCADE, related_name="links")
    source = models.ForeignKey(ContextSource, models.CASCADE, related_name="links")
    position = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ["position", "pk"]
        default_permissions = ()  # the preset's permissions apply
        constraints = [
            models.UniqueConstraint(
                fields=["preset", "source"], name="conversations_source_once_per_preset"
            )
        ]

    def __str__(self) -> str:
        return str(self.source)


class GatheredContext(models.Model):
    """The context that a turn read from its sources.

    It is stored once, so that all steps of the turn have the same context even if a
    source changes meanwhile.
    """

    turn = models.OneToOneField(
        "conversations.Turn",
        models.CASCADE,
        primary_key=True,
        related_name="gathered_context",
    )
    blocks = models.JSONField(
        help_text=_("Source, title and text of each context source.")
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()  # the turn's permissions apply

    def __str__(self) -> str:
        return self.turn_id

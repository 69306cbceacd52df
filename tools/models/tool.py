from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext_lazy as _

from llm.wire.json_pointer import format_path
from tools import registry
from tools.hosted.definitions import find_definition_problems as hosted_problems
from tools.http.call import HttpCall
from tools.http.exchange import MAX_BODY, Limits
from tools.http.openapi import OpenApiOperation
from tools.http.request_template import BodyKind, RequestTemplate
from tools.http.result import ReadAs, ReadOptions
from tools.http.validation import (
    find_problems,
    header_problems,
    parse_locations,
    parse_networks,
)
from tools.json_schema.arguments import Path
from tools.json_schema.schema_mistakes import EMPTY, rule_mistakes, schema_mistakes
from tools.models.async_results import AsyncAnswers
from tools.models.secret_headers import SecretHeaders
from tools.registry import python_tools

if TYPE_CHECKING:
    from tools.models.mcp_server import McpServer, McpTool


#: Related rows that `Tool.build_tool` and `Tool.build_hosted_definition` read.
RELATED_ROWS = ("http", "mcp__server", "mcp_server")

LONGEST_TIMEOUT = 24 * 60 * 60  # seconds
LARGEST_ANSWER = 20 * 1024 * 1024  # bytes

#: Methods that change nothing on the server (RFC 9110, section 9.2.1).
SAFE_METHODS = frozenset({"GET", "HEAD"})

_REPLAY_OF_METHODS: Mapping[str, registry.Replay] = {
    "GET": "safe",
    "HEAD": "safe",
    "PUT": "idempotent",
    "DELETE": "idempotent",
}


@dataclass(frozen=True, slots=True)
class PermittedTools:
    """The tools that a turn may use: callable tools, and definitions of hosted ones."""

    tools: dict[str, registry.RuntimeTool] = field(default_factory=dict)
    hosted: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Iterable[Tool]) -> PermittedTools:
        offer = cls()
        for row in rows:
            if row.kind == Tool.Kind.HOSTED:
                if definition := row.build_hosted_definition():
                    offer.hosted[row.name] = definition
            elif tool := row.build_tool():
                offer.tools[row.name] = tool
        return offer


_TOOL_CACHE: dict[
    str, registry.RuntimeTool
] = {}  # the last result of `build_tool` by name


class ToolQuerySet(models.QuerySet["Tool"]):
    def available(self, user: Any) -> dict[str, registry.RuntimeTool]:
        """The tools that a turn of `user` may call, by name, in one query."""
        return self.load_for(user).tools

    def load_for(self, user: Any) -> PermittedTools:
        """All tools that a turn of `user` may use, hosted ones too, in one query."""
        return PermittedTools.from_rows(self.rows_for(user))

    def rows_for(self, user: Any) -> ToolQuerySet:
        rows = self.filter(enabled=True).visible_to(user).select_related(*RELATED_ROWS)
        return rows.order_by("name")

    def visible_to(self, user: Any) -> ToolQuerySet:
        """The tools that `user` may see. None stands for the server, which sees all."""
        if user is None or user.is_superuser:
            return self
        named = Tool.groups.through.objects.filter(tool=OuterRef("pk"))
        if user.pk is None:  # an anonymous user
            return self.filter(~Exists(named))
        return self.filter(~Exists(named) | Exists(named.filter(group__user=user.pk)))

    @transaction.atomic
    def import_operation(
        self,
        operation: OpenApiOperation,
        *,
        secret_headers: Mapping[str, str],
        networks: str = "",
    ) -> Tool:
        """A new HTTP tool, switched off. Raises ValidationError."""
        tool = Tool(
            name=operation.name,
            kind=Tool.Kind.HTTP,
            label=operation.summary,
            description=operation.description,
            enabled=False,
        )
        tool.full_clean()
        tool.save()
        http = HttpTool(
            tool=tool,
            method=operation.method,
            url=operation.url,
            parameters=operation.parameters,
            places=operation.places,
            headers=operation.headers,
            body=operation.body,
            networks=networks,
        )
        http.set_secret_headers(secret_headers)
        http.full_clean()
        http.save()
        return tool

    def awaiting_review(self) -> ToolQuerySet:
        """Tools with side effects that run without approval, only because they are
        older than the rule that such tools need approval by default."""
        return self.filter(runs_unasked=True, approval="")

    def sync(self) -> None:
        """Creates missing rows for the tools in code and marks rows whose code is gone.

        What staff have set is not changed. Raises InvalidTool.
        """
        code = python_tools()
        rows = self.filter(kind=Tool.Kind.PYTHON)
        known = set(rows.values_list("name", flat=True))
        new = [
            Tool(name=name, enabled=tool.enabled)
            for name, tool in code.items()
            if name not in known
        ]
        Tool.objects.using(self.db).bulk_create(new, ignore_conflicts=True)
        rows.filter(name__in=code, is_missing=True).update(is_missing=False)
        rows.exclude(name__in=code).filter(is_missing=False).update(is_missing=True)


class Tool(models.Model):
    class Kind(models.TextChoices):
        PYTHON = "python", _("Python")
        HTTP = "http", _("HTTP")
        MCP = "mcp", _("MCP")
        HOSTED = "hosted", _("run by the provider")

    class Replay(models.TextChoices):
        SAFE = "safe", _("safe to run again")
        IDEMPOTENT = "idempotent", _("safe to run again with the same key")
        ONCE = "once", _("never run twice")

    class Approve(models.TextChoices):
        NEVER = "never", _("never")
        ALWAYS = "always", _("always")
        FIRST = "first", _("the first time in a conversation")
        RULE = "rule", _("if the arguments fit a rule")

    name = models.SlugField(
        max_length=64,
        unique=True,
        validators=[RegexValidator(registry.NAME)],
        help_text=_("What models call it by."),
    )
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.PYTHON)
    label = models.CharField(
        max_length=100,
        blank=True,
        help_text=_("What people see; empty for the tool's own label, or its name."),
    )
    description = models.TextField(
        blank=True,
        help_text=_("What the model is told; empty for the words of the code."),
    )
    enabled = models.BooleanField(default=True)
    is_missing = models.BooleanField(
        _("code is gone"),
        default=False,
        editable=False,
        help_text=_("Its code was not found at the last start or migration."),
    )
    timeout = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0.1), MaxValueValidator(LONGEST_TIMEOUT)],
        help_text=_("Seconds; empty for the tool's own limit, or the usual one."),
    )
    replay = models.CharField(
        max_length=10,
        choices=Replay.choices,
        blank=True,
        help_text=_(
            "What a crash may repeat; empty for what the code says, or the method."
        ),
    )
    blocking = models.BooleanField(
        null=True,
        blank=True,
        choices=[(True, _("waits for it")), (False, _("goes on without it"))],
        help_text=_("What the model does meanwhile; empty for what the code says."),
    )
    approval = models.CharField(
        _("approval"),
        max_length=10,
        choices=Approve.choices,
        blank=True,
        help_text=_(
            "When a person must approve a call. Empty: as the code says; for HTTP and"
            " MCP tools always, except read-only ones."
        ),
    )
    approval_rule = models.JSONField(
        null=True,
        blank=True,
        help_text=_("JSON Schema; arguments that fit it need approval."),
    )
    runs_unasked = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text=_("Made before tools with side effects needed approval by default."),
    )
    approvers = models.ForeignKey(
        Group,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("Who may agree; nobody named means the user."),
    )
    definition = models.JSONField(
        null=True,
        blank=True,
        help_text=_('What a provider is told, such as {"type": "web_search"}.'),
    )
    groups = models.ManyToManyField(
        Group, blank=True, help_text=_("Who may use it; nobody named means everybody.")
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ToolQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        permissions = [("dry_run_tool", "Can try a tool as any user")]
        constraints = [
            models.CheckConstraint(
                condition=Q(timeout=None) | Q(timeout__gt=0),
                name="tools_tool_timeout_above_0",
            )
        ]

    def __str__(self) -> str:
        return self.label or self.name

    def save(self, *args: Any, update_fields: Any = None, **kwargs: Any) -> None:
        if self.approval and self.runs_unasked:  # staff have decided
            self.runs_unasked = False
            if update_fields is not None:
                update_fields = {*update_fields, "runs_unasked"}
        super().save(*args, update_fields=update_fields, **kwargs)

    def clean(self) -> None:
        if self.kind == self.Kind.HTTP and not self.description:
            problem = _("Tell the model what this tool does, and when to use it.")
            raise ValidationError({"description": problem})
        if self.kind == self.Kind.HOSTED:
            raise_field_errors("definition", hosted_problems(self.definition))
        self._clean_rule()

    def _clean_rule(self) -> None:
        if self.approval != self.Approve.RULE:
            return
        problem = _("Write a JSON Schema that arguments in need of approval fit.")
        if not self.approval_rule:
            raise ValidationError({"approval_rule": problem})
        raise_field_errors(
            "approval_rule", describe_mistakes(rule_mistakes(self.approval_rule))
        )

    def build_base_tool(self) -> registry.RuntimeTool | None:
        """The tool as its code or definition declares it, without the row's overrides.

        None if there is no code or definition, or if a provider runs the tool.
        """
        if self.kind == self.Kind.HTTP:
            http: HttpTool | None = getattr(self, "http", None)
            return http.build_base_tool() if http else None
        if self.kind == self.Kind.MCP:
            mcp: McpTool | None = getattr(self, "mcp", None)
            return mcp.build_base_tool() if mcp else None
        if self.kind == self.Kind.HOSTED:
            return None  # the provider runs it
        return python_tools().get(self.name)

    def build_hosted_definition(self) -> dict[str, Any] | None:
        """The definition that the provider of a hosted tool receives; None if it must
        not use the tool now."""
        server: McpServer | None = getattr(self, "mcp_server", None)
        return server.build_hosted_definition() if server else self.definition or {}

    def build_tool(self) -> registry.RuntimeTool | None:
        """The tool as a turn uses it: the row's settings, else those of the code."""
        if (base := self.build_base_tool()) is None:
            return None
        tool = replace(
            base,
            label=self.label or base.label,
            description=self.description or base.description,
            timeout=base.timeout if self.timeout is None else self.timeout,
            replay=cast(registry.Replay, self.replay) or base.replay,
            blocking=base.blocking if self.blocking is None else self.blocking,
            approval=self._approval(base),
        )
        # All turns share one object, with its cached definition, until it changes.
        known = _TOOL_CACHE.get(self.name)
        if known == tool:
            return known
        _TOOL_CACHE[self.name] = tool
        return tool

    def usual_approval(self, *, reads_only: bool) -> registry.Approval | None:
        """The default approval policy: a tool that may change something needs one."""
        if reads_only or self.runs_unasked:
            return None
        return registry.Approval(policy="always")

    def _approval(self, base: registry.RuntimeTool) -> registry.Approval | None:
        match self.approval:
            case "always" | "first" | "rule" as policy:
                return registry.Approval(
                    policy=policy,
                    rule=self.approval_rule,
                    group_id=self.approvers_id,
                )
            case self.Approve.NEVER:
                return None
        approval = base.approval
        if approval and self.approvers_id:
            return replace(approval, group_id=self.approvers_id)
        return approval


def validate_parameters(parameters: Any) -> None:
    raise_validation_errors(describe_mistakes(schema_mistakes(parameters)))


def describe_mistakes(mistakes: Iterable[tuple[Path, str]]) -> Iterator[str]:
    """Yields a sentence for each mistake in a schema."""
    for path, text in mistakes:
        whole = f"{text[:1].upper()}{text[1:]}."
        yield f"At {format_path(path)}: {text}." if path else whole


def validate_headers(headers: Any) -> None:
    raise_validation_errors(header_problems(headers))


def validate_places(locations: Any) -> None:
    raise_validation_errors(parse_locations(locations)[1])


def validate_networks(text: str) -> None:
    raise_validation_errors(parse_networks(text)[1])


def raise_validation_errors(sentences: Iterable[str]) -> None:
    if wrong := list(sentences):
        raise ValidationError(wrong)


def raise_field_errors(field: str, sentences: Iterable[str]) -> None:
    if wrong := list(sentences):
        raise ValidationError({field: wrong})


def no_parameters() -> dict[str, Any]:
    return dict(EMPTY)


class HttpTool(SecretHeaders, AsyncAnswers):
    """The request of a tool of kind HTTP, and how its answer is read."""

    class Method(models.TextChoices):
        GET = "GET", "GET"
        HEAD = "HEAD", "HEAD"
        POST = "POST", "POST"
        PUT = "PUT", "PUT"
        PATCH = "PATCH", "PATCH"
        DELETE = "DELETE", "DELETE"

    class Body(models.TextChoices):
        JSON = "json", _("JSON")
        FORM = "form", _("form fields")

    class ReadAs(models.TextChoices):
        AUTO = "auto", _("as its content type says")
        JSON = "json", _("JSON")
        TEXT = "text", _("text")

    tool = models.OneToOneField(Tool, models.CASCADE, related_name="http")
    method = models.CharField(max_length=10, choices=Method.choices, default=Method.GET)
    url = models.CharField(
        _("URL"),
        max_length=2000,
        help_text=_(
            "With placeholders in its path, such as https://host/orders/{id}."
            " No secrets: they belong into a header."
        ),
    )
    parameters = models.JSONField(
        default=no_parameters,
        validators=[validate_parameters],
        help_text=_("JSON Schema of the arguments, an object."),
    )
    places = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_places],
        help_text=_(
            'Where an argument goes, as in {"lang": "header:Accept-Language"}: path,'
            " query, query_commas, query_deep, header, body or whole_body, and after a"
            " colon its name there. One that is not named goes into the path if the URL"
            " has it, else into the query of GET, HEAD and DELETE, else into the body."
        ),
    )
    body = models.CharField(max_length=10, choices=Body.choices, default=Body.JSON)
    headers = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_headers],
        help_text=_("Sent with each call, no secrets among them."),
    )
    read_as = models.CharField(
        _("read the answer as"),
        max_length=10,
        choices=ReadAs.choices,
        default=ReadAs.AUTO,
    )
    pointer = models.CharField(
        max_length=500,
        blank=True,
        validators=[RegexValidator(r"\A/", _("Write a pointer such as /data/items."))],
        help_text=_(
            "JSON Pointer to the part of the answer that the model reads, such as"
            " /data/items; empty for the whole."
        ),
    )
    max_size = models.PositiveIntegerField(
        _("size limit"),
        default=MAX_BODY,
        validators=[MinValueValidator(1), MaxValueValidator(LARGEST_ANSWER)],
        help_text=_("Bytes of an answer; a larger one is refused."),
    )
    networks = models.TextField(
        _("allowed networks"),
        blank=True,
        validators=[validate_networks],
        help_text=_(
            "Private networks that this tool may reach, one a line, such as"
            " 10.1.0.0/16; the public internet is always allowed. A cloud's metadata"
            " address must be named by itself."
        ),
    )

    class Meta:
        default_permissions = ()  # the permissions of its tool apply
        verbose_name = _("HTTP request")
        verbose_name_plural = _("HTTP request")

    def __str__(self) -> str:
        return f"{self.method} {self.url}"

    def clean(self) -> None:
        self.headers, self.places = self.headers or {}, self.places or {}
        if any(schema_mistakes(self.parameters)) or any(header_problems(self.headers)):
            return  # the validators report it
        wrong: dict[str, list[str]] = {}
        found = (
            *find_problems(self.request_template, self.parameters, self.secret_names),
            *self.find_async_problems(self.request_template),
        )
        for name, text in found:
            wrong.setdefault(name, []).append(text)
        if wrong:
            raise ValidationError(wrong)

    @property
    def request_template(self) -> RequestTemplate:
        return RequestTemplate(
            method=self.method,
            url=self.url,
            headers=self.headers,
            arguments=self.parameters.get("properties") or {},
            locations=parse_locations(self.places)[0],
            body=cast(BodyKind, self.body),
        )

    def build_base_tool(self) -> registry.RuntimeTool:
        replay = _REPLAY_OF_METHODS.get(self.method, "once")
        timeout = self.tool.timeout
        seconds = settings.TOOL_TIMEOUT if timeout is None else timeout
        if self.async_answers:  # the tool's timeout is that of the job
            seconds = min(seconds, settings.TOOL_TIMEOUT)
        call = HttpCall(
            name=self.tool.name,
            definition=self.request_template,
            read_options=ReadOptions(
                read_as=cast(ReadAs, self.read_as), pointer=self.pointer
            ),
            limits=Limits(size=self.max_size, total=seconds),
            networks=parse_networks(self.networks)[0],
            secret_headers=self.secret_headers or None,
            sends_key=(self.tool.replay or replay) == "idempotent",
            async_result=self.async_result,
        )
        return registry.RuntimeTool(
            name=self.tool.name,
            description=self.tool.description,
            parameters=self.parameters,
            call=call,
            poll=call.poll if self.async_answers else None,
            replay=replay,
            blocking=not self.async_answers,
            approval=self.tool.usual_approval(reads_only=self.method in SAFE_METHODS),
            source=str(self),
        )

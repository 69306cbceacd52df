"""Model of a tool that models may call, and of who may use it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from django.apps import apps
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext_lazy as _

from tools.hosted.definitions import find_definition_problems as hosted_problems
from tools.json_schema.schema_mistakes import rule_mistakes
from tools.registry import python_tools
from tools.runtime_tool import NAME, Approval, Replay, Risk, RuntimeTool
from tools.validators import describe_mistakes, raise_field_errors

#: Related rows that `Tool.build_tool` and `Tool.build_hosted_definition` read.
RELATED_ROWS = ("http", "mcp__server", "mcp_server")

LONGEST_TIMEOUT = 24 * 60 * 60  # seconds


class DefinitionRow(Protocol):
    """A row that defines a tool of its kind: `tool.http` or `tool.mcp`."""

    def build_base_tool(self) -> RuntimeTool | None: ...


class HostedServerRow(Protocol):
    """An MCP server that a provider calls: `tool.mcp_server`."""

    def build_hosted_definition(self) -> dict[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class PermittedTools:
    """The tools that a turn may use: callable tools, and definitions of hosted ones."""

    tools: dict[str, RuntimeTool] = field(default_factory=dict)
    hosted: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Names of those that only presets may use which name them.
    only_in_presets: set[str] = field(default_factory=set)

    @classmethod
    def from_rows(cls, rows: Iterable[Tool]) -> PermittedTools:
        offer = cls()
        for row in rows:
            if row.only_in_presets:
                offer.only_in_presets.add(row.name)
            if row.kind == Tool.Kind.HOSTED:
                if definition := row.build_hosted_definition():
                    offer.hosted[row.name] = definition
            elif tool := row.build_tool():
                offer.tools[row.name] = tool
        return offer

    def limited_to(self, names: Collection[str]) -> PermittedTools:
        """Those of these names; of all names if there are none."""
        if not names:
            return self
        return replace(
            self,
            tools={name: each for name, each in self.tools.items() if name in names},
            hosted={name: each for name, each in self.hosted.items() if name in names},
        )

    def is_allowed(self, name: str, by_preset: Collection[str] | None) -> bool:
        """Whether a conversation may use it whose preset names these tools; None if it
        has no preset, or one that names none."""
        if by_preset is None:
            return name not in self.only_in_presets
        return name in by_preset


_TOOL_CACHE: dict[str, RuntimeTool] = {}  # the last result of `build_tool` by name


class ToolQuerySet(models.QuerySet["Tool"]):
    def available(self, user: Any) -> dict[str, RuntimeTool]:
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
        servers = apps.get_model("tools", "McpServer").groups.through.objects
        of_server = servers.filter(
            Q(mcpserver=OuterRef("mcp__server")) | Q(mcpserver=OuterRef("mcp_server"))
        )
        if user.pk is None:  # an anonymous user
            return self.filter(~Exists(named), ~Exists(of_server))
        return self.filter(
            ~Exists(named) | Exists(named.filter(group__user=user.pk)),
            ~Exists(of_server) | Exists(of_server.filter(group__user=user.pk)),
        )

    def may_run_always(self, name: str) -> bool:
        """Whether a user may let the further calls of a conversation run unasked."""
        row = self.select_related(*RELATED_ROWS).filter(name=name).first()
        tool = row.build_tool() if row else None
        return tool is not None and tool.may_run_always

    def awaiting_review(self) -> ToolQuerySet:
        """Tools with side effects that run without approval, only because they are
        older than the rule that such tools need approval by default."""
        return self.filter(runs_unasked=True, approval="")

    def sync(self) -> None:
        """Create missing rows for the tools in code and mark rows whose code is gone.

        What staff have set is not changed. Raises InvalidTool.
        """
        code = python_tools()
        rows = self.filter(kind=Tool.Kind.PYTHON)
        known = set(rows.values_list("name", flat=True))
        new = [
            Tool(
                name=name,
                enabled=tool.enabled,
                only_in_presets=tool.only_in_presets,
            )
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
        RULE = "rule", _("if the arguments match a rule")

    class Risk(models.TextChoices):
        NONE = "none", _("neither reads foreign content nor changes anything")
        READS = "reads", _("reads content that others write")
        CHANGES = "changes", _("changes or sends something")
        BOTH = "both", _("reads such content and changes something")

    name = models.SlugField(
        max_length=64,
        unique=True,
        validators=[RegexValidator(NAME)],
        help_text=_("Name that models use."),
    )
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.PYTHON)
    label = models.CharField(
        max_length=100,
        blank=True,
        help_text=_(
            "Label that people see; empty for the label in the code, or the name."
        ),
    )
    description = models.TextField(
        blank=True,
        help_text=_(
            "Description that the model receives; empty for the one in the code."
        ),
    )
    enabled = models.BooleanField(default=True)
    is_missing = models.BooleanField(
        _("code is missing"),
        default=False,
        editable=False,
        help_text=_(
            "The code of the tool was not found at the last start or migration."
        ),
    )
    timeout = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0.1), MaxValueValidator(LONGEST_TIMEOUT)],
        help_text=_("Seconds; empty for the limit in the code, or the default."),
    )
    calls_per_minute = models.PositiveIntegerField(
        _("calls a minute"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_(
            "Of each user, in all their chats and programs; a call beyond is refused,"
            " and the model is told when to try again. Empty means no limit."
        ),
    )
    replay = models.CharField(
        max_length=10,
        choices=Replay.choices,
        blank=True,
        help_text=_(
            "Whether the call may run again after a crash; empty for what the code or"
            " the HTTP method says."
        ),
    )
    blocking = models.BooleanField(
        null=True,
        blank=True,
        choices=[(True, _("waits for the result")), (False, _("continues without it"))],
        help_text=_(
            "Whether the model waits for the result; empty for what the code says."
        ),
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
        help_text=_("JSON Schema; a call whose arguments match it needs approval."),
    )
    runs_unasked = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text=_(
            "Created before tools with side effects needed approval by default."
        ),
    )
    risk = models.CharField(
        max_length=10,
        choices=Risk.choices,
        blank=True,
        default="",
        db_default="",  # for processes of the previous release
        help_text=_(
            "What a call may do. Empty: as the code says; HTTP and MCP tools read"
            " content that others write, and all but read-only ones change something."
        ),
    )
    runs_after_untrusted = models.BooleanField(
        _("runs after foreign content"),
        default=False,
        db_default=False,
        help_text=_(
            "After content that others wrote (web pages, mails, files, outputs of MCP"
            " servers) has entered a turn, each call that changes something asks a"
            " person, whatever the approval policy. Tick to waive exactly this."
        ),
    )
    approvers = models.ForeignKey(
        Group,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_(
            "Group that may approve calls; empty means the user of the conversation."
        ),
    )
    definition = models.JSONField(
        null=True,
        blank=True,
        help_text=_(
            'Tool definition that providers receive, such as {"type": "web_search"}.'
        ),
    )
    groups = models.ManyToManyField(
        Group, blank=True, help_text=_("Groups that may use it; empty means everybody.")
    )
    only_in_presets = models.BooleanField(
        default=False,
        db_default=False,  # for processes of the previous release
        help_text=_("Only conversations whose preset names it may use it."),
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
            problem = _("Describe for the model what the tool does and when to use it.")
            raise ValidationError({"description": problem})
        if self.kind == self.Kind.HOSTED:
            raise_field_errors("definition", hosted_problems(self.definition))
        self._clean_rule()

    def _clean_rule(self) -> None:
        if self.approval != self.Approve.RULE:
            return
        problem = _(
            "Enter a JSON Schema that matches the arguments of calls that need"
            " approval."
        )
        if not self.approval_rule:
            raise ValidationError({"approval_rule": problem})
        raise_field_errors(
            "approval_rule", describe_mistakes(rule_mistakes(self.approval_rule))
        )

    def build_base_tool(self) -> RuntimeTool | None:
        """The tool as its code or definition declares it, without the row's overrides.

        None if there is no code or definition, or if a provider runs the tool.
        """
        match self.kind:
            case self.Kind.HTTP | self.Kind.MCP:  # the row's relation has this name
                row: DefinitionRow | None = getattr(self, self.kind, None)
                return row.build_base_tool() if row else None
            case self.Kind.HOSTED:
                return None  # the provider runs it
        return python_tools().get(self.name)

    def build_hosted_definition(self) -> dict[str, Any] | None:
        """The definition that the provider of a hosted tool receives; None if it must
        not use the tool now."""
        server: HostedServerRow | None = getattr(self, "mcp_server", None)
        return server.build_hosted_definition() if server else self.definition or {}

    def build_tool(self) -> RuntimeTool | None:
        """The tool as a turn uses it: the row's settings, else those of the code."""
        if (base := self.build_base_tool()) is None:
            return None
        tool = replace(
            base,
            label=self.label or base.label,
            description=self.description or base.description,
            timeout=base.timeout if self.timeout is None else self.timeout,
            calls_per_minute=self.calls_per_minute,
            replay=cast(Replay, self.replay) or base.replay,
            risk=cast(Risk, self.risk)
            or (base.risk_class if self.replay else base.risk),
            runs_after_untrusted=self.runs_after_untrusted or base.runs_after_untrusted,
            blocking=base.blocking if self.blocking is None else self.blocking,
            approval=self._approval(base),
        )
        # All turns share one object, with its definition, until it changes.
        known = _TOOL_CACHE.get(self.name)
        if known == tool:
            return known
        _TOOL_CACHE[self.name] = tool
        return tool

    def usual_approval(self, *, reads_only: bool) -> Approval | None:
        """The default approval policy: a tool that may change something needs one."""
        if reads_only or self.runs_unasked:
            return None
        return Approval(policy="always")

    def _approval(self, base: RuntimeTool) -> Approval | None:
        match self.approval:
            case "always" | "first" | "rule" as policy:
                return Approval(
                    policy=policy,
                    rule=self.approval_rule,
                    group_id=self.approvers_id,
                    is_strict=True,
                )
            case self.Approve.NEVER:
                return None
        approval = base.approval
        if approval and self.approvers_id:
            return replace(approval, group_id=self.approvers_id)
        return approval

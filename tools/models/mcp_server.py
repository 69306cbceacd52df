"""Model of an MCP server and of the approval of its tools.

Staff add servers that speak streamable HTTP. Servers that are programs come from the
settings (`tools.mcp.stdio_programs`); staff only set their permissions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.db.secret_headers import SecretHeaders
from llm.db.secret_rows import why_not_sent
from tools.http.validation import parse_networks, url_problems
from tools.mcp.row_access import RowNotice
from tools.mcp.server_spec import (
    DEFAULT_TIMEOUT,
    MAX_SERVER_NAME,
    SERVER_NAME,
    ServerSpec,
)
from tools.mcp.stdio_programs import load_programs
from tools.mcp.tool_definition import ToolDefinition, build_tool_name
from tools.models.mcp_listing import ToolListing
from tools.models.mcp_oauth import OAuthClient
from tools.models.mcp_tool import McpTool
from tools.models.mcp_user_sign_in import McpUserSignIn
from tools.models.stored_sign_in import StoredSignIn
from tools.models.tool import Tool
from tools.models.tool_version import MAX_NOTE, ToolVersion
from tools.validators import raise_field_errors, validate_headers, validate_networks

logger = logging.getLogger(__name__)

LONGEST_TIMEOUT = 300  # seconds


class McpServerQuerySet(models.QuerySet["McpServer"]):
    def sync(self) -> None:
        """Create missing rows, disabled, for the programs in the settings and mark
        rows whose program is gone."""
        named = load_programs()
        rows = self.filter(is_program=True)
        known = set(self.values_list("name", flat=True))
        new = [
            McpServer(name=name, is_program=True, enabled=False)
            for name in named
            if name not in known
        ]
        McpServer.objects.using(self.db).bulk_create(new, ignore_conflicts=True)
        rows.filter(name__in=named, is_missing=True).update(is_missing=False)
        rows.exclude(name__in=named).filter(is_missing=False).update(is_missing=True)


def validate_allowed(names: Any) -> None:
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ValidationError(_('Write a list of names, such as ["search", "read"].'))


class McpServer(SecretHeaders, OAuthClient, ToolListing):
    name = models.CharField(
        max_length=MAX_SERVER_NAME,
        unique=True,
        validators=[
            RegexValidator(
                SERVER_NAME,
                _("Use letters, digits, '-' and single '_', and begin with a letter."),
            )
        ],
        help_text=_("Prefix of the tools' names that models see: name__tool."),
    )
    label = models.CharField(
        max_length=100,
        blank=True,
        help_text=_("Label that people see; empty for the name."),
    )
    is_program = models.BooleanField(default=False, editable=False)
    is_missing = models.BooleanField(
        _("program is missing"),
        default=False,
        editable=False,
        help_text=_("The program is no longer in the settings."),
    )
    url = models.CharField(
        _("URL"),
        max_length=2000,
        blank=True,
        help_text=_(
            "URL of the streamable HTTP endpoint, such as https://host/mcp. Put"
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
    allowed_tools = models.JSONField(
        null=True,
        blank=True,
        validators=[validate_allowed],
        help_text=_("List of the tools to use, by the server's names; empty for all."),
    )
    networks = models.TextField(
        _("allowed networks"),
        blank=True,
        validators=[validate_networks],
        help_text=_(
            "Private networks that the server may be in, one per line, such as"
            " 10.1.0.0/16; the public internet is always allowed."
        ),
    )
    timeout = models.FloatField(
        default=DEFAULT_TIMEOUT,
        validators=[MinValueValidator(1), MaxValueValidator(LONGEST_TIMEOUT)],
        help_text=_("Seconds for connecting and for listing the tools."),
    )
    enabled = models.BooleanField(default=True)
    groups = models.ManyToManyField(
        Group,
        blank=True,
        related_name="+",
        help_text=_(
            "Groups whose members may use the server's tools; empty for everybody. The"
            " groups of a tool narrow this further."
        ),
    )
    hosted = models.BooleanField(
        _("called by the provider"),
        default=False,
        help_text=_(
            "The model's provider calls the approved tools instead of Parley: the URL,"
            " headers and secrets are sent to providers. Only providers with remote MCP"
            " support this."
        ),
    )
    hosted_tool = models.OneToOneField(
        Tool,
        models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="mcp_server",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = McpServerQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        verbose_name = _("MCP server")
        verbose_name_plural = _("MCP servers")

    def __str__(self) -> str:
        return self.label or self.name

    def clean(self) -> None:
        self.headers = self.headers or {}
        if not self.is_program:
            raise_field_errors(
                "url", url_problems(self.url) if self.url else [_URL_MISSING]
            )
            if "{" in self.url:
                raise_field_errors(
                    "url", ["Write the complete URL, without placeholders."]
                )
        if self.is_program and self.hosted:
            raise_field_errors(
                "hosted", ["A provider cannot call a local program; switch this off."]
            )
        self.clean_oauth()
        if self.hosted and self.oauth_flow:
            problem = (
                "Providers receive secret headers, but no tokens of a sign-in; switch"
                " this off or choose no sign-in."
            )
            raise_field_errors("hosted", [problem])

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete the server and its tools."""
        Tool.objects.filter(Q(mcp__server=self) | Q(mcp_server=self)).delete()
        return super().delete(*args, **kwargs)

    def secret_origin(self, column: str) -> str:
        if column == "secret_headers":
            return super().secret_origin(column)
        return self.oauth_origin(self.url)

    @property
    def secrets_not_sent(self) -> list[str]:
        oauth = [
            ("oauth_secret", _("Client secret"), self.oauth_secret),
            ("sign_in", _("Sign-in"), self.sign_in),
        ]
        return [
            *super().secrets_not_sent,
            *(
                f"{name}: {why}"
                for column, name, secret in oauth
                if (why := why_not_sent(secret, self.secret_origin(column)))
            ),
        ]

    @property
    def spec(self) -> ServerSpec:
        """The values for a connection. Raises LookupError if its program is gone."""
        common: dict[str, Any] = {
            "name": self.name,
            "label": self.label,
            "timeout": self.timeout,
            "allowed_tools": (
                None if self.allowed_tools is None else frozenset(self.allowed_tools)
            ),
            "notice": RowNotice(McpServer, self.pk, self.is_for_users),
        }
        if self.is_program:
            return ServerSpec(program=load_programs()[self.name], **common)
        return ServerSpec(
            url=self.url,
            headers=self.headers,
            secret_headers=self.secret_headers or None,
            oauth=self.oauth(),
            networks=tuple(parse_networks(self.networks)[0]),
            **common,
        )

    @property
    def is_for_users(self) -> bool:
        """Whether each user signs in."""
        return self.oauth_flow == self.Flow.USER

    @property
    def signs_in_persons(self) -> bool:
        return self.oauth_flow in (self.Flow.PERSON, self.Flow.USER)

    def find_sign_in(self, user: Any) -> StoredSignIn | None:
        """The sign-in that calls of this user have, if a person signs in."""
        if not self.is_for_users:
            return self if self.is_signed_in else None
        return McpUserSignIn.objects.filter(server=self, user=user).first()

    def spec_for(self, user: Any) -> ServerSpec:
        """`spec`, with the tokens of this user if each user signs in. Raises
        LookupError if its program is gone."""
        found = self.find_sign_in(user) if self.is_for_users and user else None
        return found.spec if isinstance(found, McpUserSignIn) else self.spec

    # Approval

    @transaction.atomic
    def approve(self, names: Collection[str], user: Any) -> list[Tool]:
        """Approve these tools as the last listing defines them, and delete those of
        them that it no longer has. Returns the approved tools.

        Raises ValidationError.
        """
        comparison = self.comparison
        approved = [
            *comparison.new,
            *(change.listed for change in comparison.changed),
        ]
        made = [self._pin(each, user) for each in approved if each.name in names]
        gone = {each.name for each in comparison.gone} & set(names)
        Tool.objects.filter(mcp__server=self, mcp__remote_name__in=gone).delete()
        self.rejections.filter(remote_name__in=names).delete()
        self.sync_hosted_tool()
        return made

    @transaction.atomic
    def reject(self, names: Collection[str], user: Any) -> list[str]:
        """Leave these tools, as the last listing defines them, out of the review.
        Returns the names of those that were listed and not approved."""
        comparison = self.comparison
        listed = [*comparison.new, *(change.listed for change in comparison.changed)]
        rejected = [each for each in listed if each.name in names]
        for each in rejected:
            self.rejections.update_or_create(
                remote_name=each.name,
                defaults={
                    "digest": each.digest,
                    "rejected_by": user,
                    "rejected_at": timezone.now(),
                },
            )
        return [each.name for each in rejected]

    def _pin(self, definition: ToolDefinition, user: Any) -> Tool:
        pin = self.tools.filter(remote_name=definition.name).first()
        pin = pin or McpTool(server=self, remote_name=definition.name)
        before = ToolVersion.take_snapshot(pin.tool) if pin.pk else None
        if not pin.pk:
            pin.tool = self._tool_for(definition)
        pin.definition, pin.difference = definition.as_dict, ""
        pin.approved_by, pin.approved_at = user, timezone.now()
        pin.save()
        note = str(_("Approved as %s lists it")) % self
        ToolVersion.objects.record(pin.tool, user, note[:MAX_NOTE], before=before)
        return pin.tool

    def _tool_for(self, definition: ToolDefinition) -> Tool:
        tool = Tool(
            name=build_tool_name(self.name, definition.name),
            kind=Tool.Kind.MCP,
            label=definition.title[:100],
        )
        tool.full_clean()
        tool.save()
        return tool

    # Calls by providers

    def sync_hosted_tool(self) -> None:
        """Create, update or delete the hosted tool that stands for this server.

        The hosted tool has no secrets: they are added when a request is made. Raises
        ValidationError if its name is taken.
        """
        if not self.hosted:
            if tool := self.hosted_tool:
                self.hosted_tool = None
                self.save(update_fields=["hosted_tool"])
                tool.delete()
            return
        tool = self.hosted_tool or Tool(name=self.name, kind=Tool.Kind.HOSTED)
        tool.label = tool.label or self.label
        tool.definition = {
            "type": "mcp",
            "server_label": self.name,
            "server_url": self.url,
            "allowed_tools": sorted(each.remote_name for each in self.tools.all()),
            "require_approval": "never",
        }
        tool.full_clean()
        tool.save()
        self.hosted_tool = tool
        self.save(update_fields=["hosted_tool"])

    def build_hosted_definition(self) -> dict[str, Any] | None:
        """The definition that a provider receives; None if it may call no tool."""
        tool = self.hosted_tool
        if not (self.enabled and self.hosted and tool and tool.definition):
            return None
        names = set(tool.definition["allowed_tools"])
        pins = self.tools.filter(remote_name__in=names).select_related("tool")
        allowed = [each.remote_name for each in pins if each.runs_at_providers]
        if not allowed:
            return None
        authorization, secret = _split_bearer_token(self.get_secret_headers())
        headers = {**self.headers, **secret}
        return {
            **tool.definition,
            "allowed_tools": allowed,
            **({"authorization": authorization} if authorization else {}),
            **({"headers": headers} if headers else {}),
        }


_URL_MISSING = "Enter the URL of the server."


def _split_bearer_token(headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The bearer token, which providers take as a separate field, and the other
    headers."""
    token, others = "", {}
    for name, value in headers.items():
        scheme, _, rest = value.partition(" ")
        if name.lower() == "authorization" and scheme.lower() == "bearer":
            token = rest.strip()
        else:
            others[name] = value
    return token, others

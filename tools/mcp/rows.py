"""MCP servers and the tools that staff approved of them, as rows.

A server of streamable HTTP is made by staff. One that is a program comes from settings
(`tools.mcp.programs`): its row only says what is allowed of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.encrypted import EncryptedTextField
from tools import registry
from tools.http.checks import read_networks, url_problems
from tools.mcp.client import tool_of
from tools.mcp.definitions import Definition, namespaced
from tools.mcp.pins import Comparison, compare
from tools.mcp.programs import programs
from tools.mcp.spec import (
    DEFAULT_TIMEOUT,
    MAX_SERVER_NAME,
    SERVER_NAME,
    ClientCredentials,
    Server,
)
from tools.models import (
    Tool,
    raise_wrong_in,
    validate_headers,
    validate_networks,
)
from tools.secret_headers import SecretHeaders

LONGEST_TIMEOUT = 300  # seconds


class McpServerQuerySet(models.QuerySet["McpServer"]):
    def sync(self) -> None:
        """A row, switched off, for each program of settings; those without one are
        marked."""
        named = programs()
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


class McpServer(SecretHeaders):
    name = models.CharField(
        max_length=MAX_SERVER_NAME,
        unique=True,
        validators=[
            RegexValidator(
                SERVER_NAME, _("Letters, digits, '-' and single '_', a letter first.")
            )
        ],
        help_text=_("Models see it before the names of its tools: name__tool."),
    )
    label = models.CharField(
        max_length=100, blank=True, help_text=_("What people see; empty for the name.")
    )
    is_program = models.BooleanField(default=False, editable=False)
    is_missing = models.BooleanField(
        _("program is gone"),
        default=False,
        editable=False,
        help_text=_("Its program is not in the settings any more."),
    )
    url = models.CharField(
        _("URL"),
        max_length=2000,
        blank=True,
        help_text=_(
            "Of streamable HTTP, such as https://host/mcp. No secrets: they belong into"
            " a header."
        ),
    )
    headers = models.JSONField(
        default=dict,
        blank=True,
        validators=[validate_headers],
        help_text=_("Sent with each request, no secrets among them."),
    )
    oauth_client_id = models.CharField(
        _("client id"),
        max_length=500,
        blank=True,
        help_text=_("Of OAuth client credentials; empty where headers are enough."),
    )
    oauth_issuer = models.CharField(
        _("issuer"),
        max_length=2000,
        blank=True,
        help_text=_(
            "The authorization server that knows the client, such as"
            " https://login.host; the secret is sent nowhere else."
        ),
    )
    oauth_scope = models.CharField(
        _("scopes"),
        max_length=1000,
        blank=True,
        help_text=_("Separated by spaces; empty for what the server asks for."),
    )
    oauth_hint = models.CharField(max_length=20, blank=True, editable=False)
    oauth_secret = EncryptedTextField(
        _("client secret"), blank=True, default="", hint_field="oauth_hint"
    )
    allowed_tools = models.JSONField(
        null=True,
        blank=True,
        validators=[validate_allowed],
        help_text=_("A list of the server's own names; empty for all."),
    )
    networks = models.TextField(
        _("allowed networks"),
        blank=True,
        validators=[validate_networks],
        help_text=_(
            "Private networks that the server may lie in, one a line, such as"
            " 10.1.0.0/16; the public internet is always allowed."
        ),
    )
    timeout = models.FloatField(
        default=DEFAULT_TIMEOUT,
        validators=[MinValueValidator(1), MaxValueValidator(LONGEST_TIMEOUT)],
        help_text=_("Seconds for connecting and for listing its tools."),
    )
    enabled = models.BooleanField(default=True)
    hosted = models.BooleanField(
        _("called by the provider"),
        default=False,
        help_text=_(
            "The approved tools are called by the model's provider instead of by us:"
            " address, headers and secrets are sent to providers. Only those that run"
            " remote MCP take it."
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
    listing = models.JSONField(default=list, editable=False)
    listed_at = models.DateTimeField(null=True, editable=False)
    about = models.JSONField(default=dict, editable=False)
    error = models.TextField(blank=True, editable=False)
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
            raise_wrong_in("url", url_problems(self.url) if self.url else [_MISSING])
            if "{" in self.url:
                raise_wrong_in(
                    "url", ["Write the whole address; nothing is filled in."]
                )
        if self.is_program and self.hosted:
            raise_wrong_in("hosted", ["A program of ours cannot be called by others."])
        if self.oauth_client_id:
            self._clean_oauth()

    def _clean_oauth(self) -> None:
        if self.oauth_issuer:
            raise_wrong_in("oauth_issuer", url_problems(self.oauth_issuer))
        else:
            raise_wrong_in("oauth_issuer", ["Name the authorization server."])
        if not self.oauth_secret:
            raise_wrong_in("oauth_secret", ["Enter the secret of this client."])
        if any(name.lower() == "authorization" for name in self.secret_names):
            problem = "There is a secret header Authorization; use one of both."
            raise_wrong_in("oauth_client_id", [problem])

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """With its tools, which are nothing without it."""
        Tool.objects.filter(Q(mcp__server=self) | Q(mcp_server=self)).delete()
        return super().delete(*args, **kwargs)

    @property
    def spec(self) -> Server:
        """As it is connected to. Raises LookupError where its program is gone."""
        common: dict[str, Any] = {
            "name": self.name,
            "label": self.label,
            "timeout": self.timeout,
            "allowed_tools": (
                None if self.allowed_tools is None else frozenset(self.allowed_tools)
            ),
        }
        if self.is_program:
            return Server(program=programs()[self.name], **common)
        return Server(
            url=self.url,
            headers=self.headers,
            secret_headers=self.secret_headers or None,
            oauth=self._oauth(),
            networks=tuple(read_networks(self.networks)[0]),
            **common,
        )

    def _oauth(self) -> ClientCredentials | None:
        if not self.oauth_client_id:
            return None
        return ClientCredentials(
            client_id=self.oauth_client_id,
            client_secret=self.oauth_secret or None,
            issuer=self.oauth_issuer,
            scope=self.oauth_scope,
        )

    # What it lists

    def record_listing(
        self, found: Collection[Definition], about: Mapping[str, str]
    ) -> None:
        self.listing = [definition.stored for definition in found]
        self.about, self.listed_at, self.error = dict(about), timezone.now(), ""
        self.save(update_fields=["listing", "about", "listed_at", "error"])

    def record_error(self, error: str) -> None:
        self.error = error
        self.save(update_fields=["error"])

    @property
    def comparison(self) -> Comparison:
        """What is approved against what was listed last."""
        pinned = {each.remote_name: each.pinned for each in self.tools.all()}
        return compare(pinned, map(Definition.read, self.listing))

    # Approval

    @transaction.atomic
    def approve(self, names: Collection[str], user: Any) -> list[Tool]:
        """Pins these of the last listing as they are; those that are gone from it are
        removed. Returns the tools that are there now. Raises ValidationError."""
        comparison = self.comparison
        approved = [
            *comparison.new,
            *(change.listed for change in comparison.changed),
        ]
        made = [self._pin(each, user) for each in approved if each.name in names]
        gone = {each.name for each in comparison.gone} & set(names)
        Tool.objects.filter(mcp__server=self, mcp__remote_name__in=gone).delete()
        self.host()
        return made

    def _pin(self, definition: Definition, user: Any) -> Tool:
        values = {
            "definition": definition.stored,
            "approved_by": user,
            "approved_at": timezone.now(),
        }
        pin = self.tools.filter(remote_name=definition.name).first()
        if pin:
            McpTool.objects.filter(pk=pin.pk).update(**values)
            return pin.tool
        tool = Tool(
            name=namespaced(self.name, definition.name),
            kind=Tool.Kind.MCP,
            label=definition.title[:100],
        )
        tool.full_clean()
        tool.save()
        McpTool.objects.create(
            tool=tool, server=self, remote_name=definition.name, **values
        )
        return tool

    # Handed to providers

    def host(self) -> None:
        """Brings the tool that stands for the whole server in line with the switch.

        It holds no secrets: those are added when a request is made. Raises
        ValidationError where its name is taken.
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

    def declared(self) -> dict[str, Any] | None:
        """What a provider is told. None while nothing is approved."""
        tool = self.hosted_tool
        if not (self.enabled and self.hosted and tool and tool.definition):
            return None
        if not tool.definition["allowed_tools"]:
            return None
        authorization, secret = _parted(self.revealed_headers())
        headers = {**self.headers, **secret}
        return {
            **tool.definition,
            **({"authorization": authorization} if authorization else {}),
            **({"headers": headers} if headers else {}),
        }


class McpTool(models.Model):
    """A server's tool as staff approved it: what a model is told, and what runs."""

    tool = models.OneToOneField(Tool, models.CASCADE, related_name="mcp")
    server = models.ForeignKey(McpServer, models.CASCADE, related_name="tools")
    remote_name = models.CharField(max_length=500)
    definition = models.JSONField()
    approved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    approved_at = models.DateTimeField()

    class Meta:
        default_permissions = ()  # those of its tool and its server
        ordering = ["remote_name"]
        verbose_name = _("MCP tool")
        constraints = [
            models.UniqueConstraint(
                fields=["server", "remote_name"], name="tools_mcptool_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.server}: {self.remote_name}"

    @property
    def pinned(self) -> Definition:
        return Definition.read(self.definition)

    def offered(self) -> registry.Tool | None:
        """As approved; the server is not asked. None where it is not ours to call."""
        server = self.server
        if not server.enabled or server.hosted:
            return None
        try:
            spec = server.spec
        except LookupError:  # its program is gone from the settings
            return None
        if not spec.allows(self.remote_name):
            return None
        return tool_of(spec, self.pinned, self.tool.name)


_MISSING = "Write the address of the server."


def _parted(headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The bearer token, which providers take by itself, and all other headers."""
    token, others = "", {}
    for name, value in headers.items():
        scheme, _, rest = value.partition(" ")
        if name.lower() == "authorization" and scheme.lower() == "bearer":
            token = rest.strip()
        else:
            others[name] = value
    return token, others

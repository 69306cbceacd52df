"""Admin page of the definitions of all MCP servers that wait for a review."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from tools.mcp.tool_definition import ToolDefinition
from tools.models.mcp_rejection import McpRejection
from tools.models.mcp_server import McpServer
from tools.text_diff import DiffLine

MAX_SHOWN = 50  # definitions on the page
MAX_REJECTED = 100  # decisions on the page


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEntry:
    """A definition that waits for a review. `key` changes if the definition does."""

    server: McpServer
    kind: Literal["changed", "new", "gone"]
    definition: ToolDefinition
    parts: Sequence[tuple[str, Sequence[DiffLine]]] = ()  # of a change

    @property
    def key(self) -> str:
        definition = self.definition
        parts = (self.server.pk, self.kind, definition.digest, definition.name)
        return " ".join(map(str, parts))


def entries_of(servers: Iterable[McpServer]) -> Iterator[ReviewEntry]:
    """Changed definitions first: their tools are held back."""
    found = [(server, server.to_review) for server in servers]
    for server, review in found:
        for change in review.changed:
            yield ReviewEntry(
                server=server,
                kind="changed",
                definition=change.listed,
                parts=change.parts,
            )
    for server, review in found:
        for definition in review.gone:
            yield ReviewEntry(server=server, kind="gone", definition=definition)
        for definition in review.new:
            yield ReviewEntry(server=server, kind="new", definition=definition)


class McpReviewAdmin(admin.ModelAdmin):
    """The review queue, with approval and rejection of what is chosen."""

    change_list_template = "admin/tools/mcpserver/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.review_view)
        own = [path("review/", view, name="tools_mcpserver_review")]
        return [*own, *super().get_urls()]

    def review_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = self.get_queryset(request).filter(listed_at__isnull=False)
        servers = rows.prefetch_related("rejections")
        entries = list(entries_of(servers))
        if request.method == "POST":
            return self._decide(request, {each.key: each for each in entries})
        rejected = McpRejection.objects.select_related("server", "rejected_by")
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Review of MCP tools"),
            "entries": entries[:MAX_SHOWN],
            "hidden": max(0, len(entries) - MAX_SHOWN),
            "rejected": rejected.order_by("-rejected_at")[:MAX_REJECTED],
            "may_change": self.has_change_permission(request),
        }
        return TemplateResponse(request, "admin/tools/mcpserver/review.html", context)

    def _decide(
        self, request: HttpRequest, entries: Mapping[str, ReviewEntry]
    ) -> HttpResponse:
        if not self.has_change_permission(request):
            raise PermissionDenied
        keys = request.POST.getlist("entry")
        chosen = [entries[key] for key in keys if key in entries]
        if len(chosen) < len(keys):
            text = _("Some definitions have changed since you opened the page.")
            self.message_user(request, text, messages.ERROR)
        by_server: dict[McpServer, list[str]] = {}
        for each in chosen:
            by_server.setdefault(each.server, []).append(each.definition.name)
        decide = self._approve_names if "_approve" in request.POST else self._reject
        for server, names in by_server.items():
            decide(request, server, names)
        return redirect(f"{self.admin_site.name}:tools_mcpserver_review")

    def _approve_names(
        self, request: HttpRequest, row: McpServer, names: Sequence[str]
    ) -> None:
        try:
            row.approve(names, request.user)
        except ValidationError as exc:
            text = f"{row}: {' '.join(exc.messages)}"
            self.message_user(request, text, messages.ERROR)
            return
        self.log_change(request, row, f"Approved: {', '.join(sorted(names))}.")
        success_text = ngettext("%d tool approved.", "%d tools approved.", len(names))
        text = f"{row}: {success_text % len(names)}"
        self.message_user(request, text, messages.SUCCESS)

    def _reject(
        self, request: HttpRequest, row: McpServer, names: Sequence[str]
    ) -> None:
        rejected = row.reject(names, request.user)
        if len(rejected) < len(names):
            problem = _("A removal cannot be rejected: the server has no such tool.")
            self.message_user(request, f"{row}: {problem}", messages.WARNING)
        if not rejected:
            return
        self.log_change(request, row, f"Rejected: {', '.join(sorted(rejected))}.")
        done = ngettext("%d tool rejected.", "%d tools rejected.", len(rejected))
        text = f"{row}: {done % len(rejected)}"
        self.message_user(request, text, messages.SUCCESS)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The list of servers, with a link to the queue."""
        servers = McpServer.objects.prefetch_related("tools", "rejections")
        waiting = sum(1 for _each in entries_of(servers))
        context = {**(extra_context or {}), "waiting": waiting}
        return super().changelist_view(request, context)

"""Admin page of what people have granted: sign-ins at MCP servers, and approvals that
cover a conversation's further calls; with their revocation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache

from conversations.access.mcp_sign_ins import sign_out_user
from conversations.models import Question
from tools.errors import ToolError
from tools.mcp.sign_out import sign_out
from tools.models import McpServer, McpUserSignIn, Tool

MAX_SHOWN = 200  # of each sort
MAX_READ = 1_000  # questions

VIEW_SERVERS, CHANGE_SERVERS = "tools.view_mcpserver", "tools.change_mcpserver"
REVOKE = "conversations.change_question"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingApproval:
    """A tool that runs unasked in a conversation, because it was approved there."""

    owner: str
    conversation_id: str
    tool: str
    decision: Question  # the newest one

    @property
    def key(self) -> str:
        return f"{self.conversation_id} {self.tool}"


def standing_approvals(
    questions: QuerySet[Question], username: str
) -> tuple[list[StandingApproval], bool]:
    """One for each tool of each conversation, newest first; and whether there are more
    than were read."""
    names = [each.name for each in Tool.objects.all() if _asks_once(each)]
    rows = questions.filter(
        kind=Question.Kind.APPROVAL,
        state=Question.State.ACCEPTED,
        revoked_at=None,
    ).filter(Q(tool_call__name__in=names) | Q(always=True))
    if username:
        rows = rows.filter(tool_call__turn__conversation__owner__username=username)
    related = ["tool_call__turn__conversation__owner", "decided_by"]
    found: dict[str, StandingApproval] = {}
    read = list(rows.select_related(*related).order_by("-asked_at")[: MAX_READ + 1])
    for row in read[:MAX_READ]:
        conversation = row.tool_call.turn.conversation
        each = StandingApproval(
            owner=conversation.owner.get_username(),
            conversation_id=conversation.pk,
            tool=row.tool_call.name,
            decision=row,
        )
        found.setdefault(each.key, each)
    return list(found.values()), len(read) > MAX_READ


def _asks_once(row: Tool) -> bool:
    tool = row.build_tool()
    approval = tool.approval if tool else None
    return approval is not None and approval.policy == "first"


class GrantsAdmin(admin.ModelAdmin):
    change_list_template = "admin/conversations/question/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(never_cache(self.grants_view))
        name = "conversations_question_grants"
        return [path("grants/", view, name=name), *super().get_urls()]

    def grants_view(self, request: HttpRequest) -> HttpResponse:
        """`user`: only what concerns the user with this name."""
        may_see_servers = request.user.has_perm(VIEW_SERVERS)
        if not (may_see_servers or self.has_view_permission(request)):
            raise PermissionDenied
        if request.method == "POST":
            return self._revoke(request)
        username = request.GET.get("user", "").strip()
        approvals: Sequence[StandingApproval] = []
        is_cut = False
        if self.has_view_permission(request):
            approvals, is_cut = standing_approvals(self.get_queryset(request), username)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Grants"),
            "username": username,
            "sign_ins": _sign_ins(username)[:MAX_SHOWN] if may_see_servers else [],
            "own_sign_ins": _own_sign_ins(username)[:MAX_SHOWN]
            if may_see_servers
            else [],
            "may_sign_out": request.user.has_perm(CHANGE_SERVERS),
            "may_see_servers": may_see_servers,
            "approvals": approvals[:MAX_SHOWN],
            "hidden": max(0, len(approvals) - MAX_SHOWN),
            "most_read": MAX_READ if is_cut else 0,
            "may_revoke": request.user.has_perm(REVOKE),
        }
        template = "admin/conversations/question/grants.html"
        return TemplateResponse(request, template, context)

    def _revoke(self, request: HttpRequest) -> HttpResponse:
        if "server" in request.POST:
            self._sign_out(request, _sign_ins(""), request.POST["server"])
        elif "own" in request.POST:
            self._sign_out(request, _own_sign_ins(""), request.POST["own"])
        else:
            self._revoke_approvals(request, request.POST.getlist("approval"))
        page = "admin:conversations_question_grants"
        answer = redirect(page)
        if username := request.POST.get("user", ""):
            answer["Location"] += f"?{urlencode({'user': username})}"
        return answer

    def _sign_out(self, request: HttpRequest, rows: QuerySet[Any], pk: str) -> None:
        if not request.user.has_perm(CHANGE_SERVERS):
            raise PermissionDenied
        row = rows.filter(pk=int(pk)).first() if _is_key(pk) else None
        if row is None:
            self.message_user(request, _("It was revoked already."), messages.WARNING)
            return
        text, level = _("The sign-in at %(server)s is revoked."), messages.SUCCESS
        why = ""
        try:
            if isinstance(row, McpUserSignIn):
                sign_out_user(row, request.user)
            else:
                sign_out(row)
        except ToolError as exc:  # the tokens are deleted here all the same
            problem = _("The server did not revoke them: %(why)s") % {"why": exc}
            why, level = f" {problem}", messages.WARNING
        server = row.server if isinstance(row, McpUserSignIn) else row
        self.log_change(request, server, "Revoked the sign-in.")
        self.message_user(request, text % {"server": server} + why, level)

    def _revoke_approvals(self, request: HttpRequest, keys: Sequence[str]) -> None:
        if not request.user.has_perm(REVOKE):
            raise PermissionDenied
        visible = self.get_queryset(request).filter(
            kind=Question.Kind.APPROVAL, state=Question.State.ACCEPTED, revoked_at=None
        )
        revoked = 0
        for key in keys[:MAX_SHOWN]:
            conversation_id, _space, tool = key.partition(" ")
            rows = visible.filter(
                tool_call__turn__conversation_id=conversation_id, tool_call__name=tool
            )
            found = list(rows.order_by("-asked_at")[:MAX_READ])
            ids = [row.pk for row in found]
            if Question.objects.filter(pk__in=ids).update(revoked_at=timezone.now()):
                self.log_change(request, found[0], f"Revoked the approval of {tool}.")
                revoked += 1
        text = ngettext("%d approval revoked.", "%d approvals revoked.", revoked)
        level = messages.SUCCESS if revoked else messages.WARNING
        self.message_user(request, text % revoked, level)


def _sign_ins(username: str) -> QuerySet[McpServer]:
    """Servers with a sign-in, the newest one first."""
    rows = McpServer.objects.filter(signed_in_at__isnull=False)
    if username:
        rows = rows.filter(signed_in_by__username=username)
    return rows.select_related("signed_in_by").order_by("-signed_in_at")


def _own_sign_ins(username: str) -> QuerySet[McpUserSignIn]:
    """Of users for themselves, the newest first."""
    rows = McpUserSignIn.objects.select_related("server", "user")
    if username:
        rows = rows.filter(user__username=username)
    return rows.order_by("-signed_in_at")


def _is_key(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 18

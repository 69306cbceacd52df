"""Admin pages for OAuth sign-in at an MCP server, with the callback and sign-out."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from llm.db.secret_rows import why_not_sent
from tools.conf import settings
from tools.errors import ToolError
from tools.mcp.errors import SignInFailed
from tools.mcp.row_access import describe_failure
from tools.mcp.sign_in import begin, finish
from tools.mcp.sign_out import sign_out
from tools.models.mcp_pending_sign_in import McpSignIn
from tools.models.mcp_server import McpServer
from tools.models.mcp_user_sign_in import McpUserSignIn

#: The message after a sign-out, by whether the server revoked the tokens.
_SIGN_OUT_MESSAGES = {
    True: _("Signed out: the tokens are deleted here and revoked at the server."),
    False: _("Signed out: the tokens are deleted here."),
}


class McpSignInAdmin(admin.ModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path(
                "<int:pk>/sign-in/",
                view(never_cache(self.sign_in_view)),
                name="tools_mcpserver_sign_in",
            ),
            path(
                "signed-in/",
                view(never_cache(require_GET(self.callback_view))),
                name="tools_mcpserver_signed_in",
            ),
        ]
        return [*own, *super().get_urls()]

    def sign_in_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self.get_queryset(request).filter(pk=pk).first()
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        if row is None or not row.signs_in_persons:
            raise Http404
        if "_sign_out" in request.POST:
            return self._sign_out(request, row)
        page = self._begin(request, row) if request.method == "POST" else ""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Sign in at %(server)s") % {"server": row},
            "row": row,
            "current": row.find_sign_in(request.user),
            "page": page,
            "host": urlsplit(page).netloc,
            "back": _callback_url(request),
        }
        return TemplateResponse(request, "admin/tools/mcpserver/sign_in.html", context)

    def _begin(self, request: HttpRequest, row: McpServer) -> str:
        try:
            return begin(row, request.user, _callback_url(request))
        except ToolError as exc:
            self.message_user(request, describe_failure(exc), messages.ERROR)
            return ""

    def _sign_out(self, request: HttpRequest, row: McpServer) -> HttpResponse:
        try:
            is_revoked = _sign_out(row, request.user)
            text, level = str(_SIGN_OUT_MESSAGES[is_revoked]), messages.SUCCESS
        except ToolError as exc:
            why = _("The server did not revoke them: %(why)s") % {"why": exc}
            text, level = f"{_SIGN_OUT_MESSAGES[False]} {why}", messages.WARNING
        self.log_change(request, row, "Signed out.")
        self.message_user(request, text, level)
        return redirect("admin:tools_mcpserver_sign_in", row.pk)

    def callback_view(self, request: HttpRequest) -> HttpResponse:
        """The OAuth redirect URI: receives the authorization code."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        query = request.GET.dict()
        try:
            row, secrets = McpSignIn.objects.take(query.get("state", ""), request.user)
        except SignInFailed as exc:
            self.message_user(request, _sign_in_error(exc), messages.ERROR)
            return redirect("admin:tools_mcpserver_changelist")
        try:
            finish(row, request.user, secrets, query)
        except SignInFailed as exc:
            self.message_user(request, _sign_in_error(exc), messages.ERROR)
            return redirect("admin:tools_mcpserver_sign_in", row.pk)
        self.log_change(request, row, "Signed in.")
        text = _("Signed in at %(server)s.") % {"server": row}
        self.message_user(request, text, messages.SUCCESS)
        return redirect("admin:tools_mcpserver_tools", row.pk)

    @admin.display(description=_("signed in"))
    def sign_in_status(self, row: McpServer) -> str:
        if row.is_for_users:
            return str(_("each user"))
        if row.oauth_flow != McpServer.Flow.PERSON:
            return "–"
        if not row.is_signed_in:
            return str(_("nobody"))
        if why := why_not_sent(row.sign_in, row.secret_origin("sign_in")):
            return why
        who = row.signed_in_by or _("a deleted user")
        return f"{who}, {row.signed_in_at:%Y-%m-%d %H:%M}"


def _sign_out(row: McpServer, user: Any) -> bool:
    """Sign out the member of staff, or all users if one sign-in is for all. Raises
    ToolError."""
    if not row.is_for_users:
        return sign_out(row)
    own = McpUserSignIn.objects.filter(server=row, user=user).first()
    return sign_out(own) if own else False


def _callback_url(request: HttpRequest) -> str:
    """The public URL of `callback_view`."""
    page = reverse("admin:tools_mcpserver_signed_in")
    if settings.PUBLIC_URL:
        return f"{settings.PUBLIC_URL.rstrip('/')}{page}"
    return request.build_absolute_uri(page)


def _sign_in_error(exc: SignInFailed) -> Any:
    return _("You are not signed in: %(why)s") % {"why": exc}

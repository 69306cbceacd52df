"""Pages of a user's own sign-ins at MCP servers: begin, come back, list, sign out."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from conversations.access.mcp_sign_ins import offered_servers, sign_out_user
from conversations.audit.record import record_event
from conversations.models import Question
from conversations.pages.notices.next_page_message import say_done
from conversations.pages.question_views import card, render_card
from conversations.requests.errors import InvalidInput, QuestionAlreadyDecided
from conversations.requests.question_answers import answer_question
from tools.conf import settings
from tools.errors import ToolError
from tools.mcp.errors import SignInFailed
from tools.mcp.sign_in import begin, finish_for_user
from tools.models import McpServer, McpSignIn, McpUserSignIn


@login_required
@never_cache
@require_GET
def begin_for_question(request: HttpRequest, question_id: str) -> HttpResponse:
    """Send the user to the server's authorization, and then back to the chat."""
    rows = Question.objects.answerable_by(request.user).select_related("server")
    asked = rows.filter(kind=Question.Kind.SIGN_IN)
    question = get_object_or_404(asked.distinct(), pk=question_id)
    server = question.server
    is_open = question.state == Question.State.OPEN
    if not is_open or server is None or not _is_own_click(request):
        return redirect("question", question.pk)
    try:
        return redirect(_begin(request, server, question.pk))
    except ToolError as exc:
        return _show(request, _describe(exc), question.pk)


@login_required
@never_cache
@require_GET
def begin_at_server(request: HttpRequest, server_id: int) -> HttpResponse:
    """The same without a question, from the list of sign-ins."""
    server = offered_servers(request.user).filter(pk=server_id).first()
    if server is None:
        raise Http404
    if not _is_own_click(request):
        return redirect("sign-ins")
    try:
        return redirect(_begin(request, server, ""))
    except ToolError as exc:
        return _show(request, _describe(exc))


@never_cache
@require_GET
def come_back(request: HttpRequest) -> HttpResponse:
    """The OAuth redirect URI: receives the authorization code, once, for the user and
    in the session that began the sign-in."""
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("sign-ins"))  # without the code
    query = request.GET.dict()
    try:
        server, secrets = McpSignIn.objects.take(query.get("state", ""), request.user)
    except SignInFailed as exc:
        return _show(request, _describe(exc))
    question_id = secrets.get("question", "")
    try:
        _finish(request, server, secrets, query)
    except SignInFailed as exc:
        return _show(request, _describe(exc), question_id)
    _answer_questions(request.user, server)
    question = Question.objects.filter(pk=question_id).select_related("tool_call__turn")
    if (found := question.first()) is None:
        return redirect("sign-ins")
    turn = found.tool_call.turn
    page = reverse("conversation", args=[turn.conversation_id])
    return redirect(f"{page}#turn-{turn.pk}")


@login_required
@never_cache
@require_GET
def sign_ins(request: HttpRequest) -> HttpResponse:
    return _page(request)


@login_required
@require_POST
def sign_out(request: HttpRequest, pk: int) -> HttpResponse:
    row = McpUserSignIn.objects.filter(user=request.user.pk, pk=pk).first()
    if row is None:
        raise Http404
    try:
        sign_out_user(row, request.user)
    except ToolError as exc:
        problem = gettext(
            "You are signed out here, but the server did not revoke the access: %(why)s"
        )
        return _page(request, problem % {"why": exc})
    say_done(request, gettext("You are signed out of the server."))
    return redirect("sign-ins")


def _begin(request: HttpRequest, server: McpServer, question_id: str) -> str:
    """Raises ToolError."""
    if not (server.enabled and server.is_for_users):
        raise SignInFailed("this server is not set up for a sign-in.")
    about = {"question": question_id, "session": _session_digest(request)}
    return begin(server, request.user, _callback_url(request), **about)


def _finish(
    request: HttpRequest,
    server: McpServer,
    secrets: dict[str, Any],
    query: dict[str, str],
) -> None:
    """Raises SignInFailed."""
    if secrets.get("session") != _session_digest(request) or not server.is_for_users:
        raise SignInFailed("the sign-in was begun in another session. Start it again.")
    failure, _listing = finish_for_user(server, request.user, secrets, query)
    if isinstance(failure, SignInFailed):  # the server refuses the tokens
        raise failure
    record_event("server.sign_in", target=server, subject=request.user)


def _answer_questions(user: Any, server: McpServer) -> None:
    """All calls of the user that wait for this sign-in go on."""
    rows = Question.objects.awaiting_sign_in(user, server)
    for question in rows.select_related("tool_call__turn"):
        # Decided meanwhile, or signed out meanwhile: the card shows it.
        with suppress(QuestionAlreadyDecided, InvalidInput):
            answer_question(question, user, "accept")


def _is_own_click(request: HttpRequest) -> bool:
    """False for a link on another site, and for a browser that fetches ahead: nothing
    begins then. https://www.w3.org/TR/fetch-metadata/"""
    site = request.headers.get("Sec-Fetch-Site", "none")
    purpose = request.headers.get("Sec-Purpose", "")
    return site in ("none", "same-origin") and "prefetch" not in purpose


def _session_digest(request: HttpRequest) -> str:
    return sha256((request.session.session_key or "").encode()).hexdigest()


def _callback_url(request: HttpRequest) -> str:
    page = reverse("signed-in-at-server")
    if settings.PUBLIC_URL:
        return f"{settings.PUBLIC_URL.rstrip('/')}{page}"
    return request.build_absolute_uri(page)


def _describe(exc: ToolError) -> str:
    return gettext("You are not signed in: %(why)s") % {"why": exc}


def _show(request: HttpRequest, problem: str, question_id: str = "") -> HttpResponse:
    """The problem, on the card of the question if there is one."""
    rows = Question.objects.answerable_by(request.user).distinct()
    if found := rows.filter(pk=question_id).first():
        shown = card(found, request.user, notice=problem)
        return render_card(request, shown, status=400)
    return _page(request, problem, status=400)


def _page(request: HttpRequest, problem: str = "", status: int = 200) -> HttpResponse:
    signed_in = {
        row.server_id: row for row in McpUserSignIn.objects.filter(user=request.user.pk)
    }
    offered = list(offered_servers(request.user))
    servers = {server.pk: server for server in offered}
    beyond = McpServer.objects.filter(pk__in=signed_in.keys() - servers.keys())
    rows = [
        {
            "server": server,
            "sign_in": signed_in.get(server.pk),
            "is_offered": server.pk in servers,
        }
        for server in [*offered, *beyond]
    ]
    context = {"rows": rows, "problem": problem}
    template = "conversations/settings/sign_ins.html"
    return render(request, template, context, status=status)

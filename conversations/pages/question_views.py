"""Pages of questions to a user: one question, and the list of open questions.

The chat shows the same card inside its turn. There static/js/questions.js posts the
form with `fetch` and replaces the card with the one in the response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import (
    require_GET,
    require_http_methods,
    require_POST,
)

from conversations.access.participation import role_of
from conversations.models import AlreadyDecided, Question, Turn
from conversations.models.participant import Role
from conversations.pages.notices.next_page_message import say_done
from conversations.pages.question_forms import QuestionForm, form_for
from tools.models import Tool

_LONGEST_LIST = 100
_NOT_ALLOWED = _("You may not decide this question; your answer was not used.")
_ALREADY_DECIDED = _("The question was already decided; your answer was not used.")


@dataclass(frozen=True, slots=True)
class QuestionCard:
    """A question as one user sees it."""

    question: Question
    form: QuestionForm | None  # None where this user may not answer
    is_own: bool  # it belongs to a conversation of this user
    notice: str = ""
    may_always: bool = False  # this user may let further calls run unasked
    covers_chat: bool = False  # an approval lets further calls of the tool run unasked


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def question(request: HttpRequest, question_id: str) -> HttpResponse:
    """A question's card: a fragment for requests by script, else a page."""
    found = get_object_or_404(_visible_questions(request), pk=question_id)
    if request.method != "POST":
        return render_card(request, card(found, request.user))
    submitted = card(found, request.user, request.POST)
    if submitted.form is None:
        return _render_refusal(request, found)
    if not submitted.form.is_valid():
        return render_card(request, submitted, status=400)
    try:
        is_accepted = submitted.form.decide(request.user)
    except AlreadyDecided:
        found.refresh_from_db()
        return _render_refusal(request, found)
    return (
        _render_decision(request, found)
        if is_accepted
        else render_card(request, submitted, status=400)
    )


@login_required
@never_cache
@require_GET
def questions(request: HttpRequest) -> HttpResponse:
    """All open questions that this user may decide, the oldest first."""
    rows = _with_parts(Question.objects.open().answerable_by(request.user))
    cards = [card(row, request.user) for row in rows.distinct()[:_LONGEST_LIST]]
    standing = Question.objects.covering_chats().filter(decided_by=request.user.pk)
    context = {"cards": cards, "standing": _with_parts(standing)[:_LONGEST_LIST]}
    return render(request, "conversations/questions.html", context)


@login_required
@require_POST
def revoke_approval(request: HttpRequest, question_id: str) -> HttpResponse:
    """From now on the tool asks again in this chat, for this user's messages."""
    mine = Question.objects.filter(decided_by=request.user.pk, always=True)
    found = get_object_or_404(mine.select_related("tool_call__turn"), pk=question_id)
    mine.of_tool_in_chat(found).covering_chats().revoke(request.user)
    say_done(request, gettext("The approval was revoked."))
    turn = found.tool_call.turn
    if not Turn.objects.visible_to(request.user).filter(pk=turn.pk).exists():
        return redirect("questions")
    page = reverse("conversation", args=[turn.conversation_id])
    return redirect(f"{page}#turn-{turn.pk}")


def card(row: Question, user: Any, data: Any = None, notice: str = "") -> QuestionCard:
    is_own = row.tool_call.turn.conversation.owner_id == user.pk
    may_answer = row.state == Question.State.OPEN and _may_answer(row, user, is_own)
    form = form_for(row, data) if may_answer else None
    return QuestionCard(
        row,
        form,
        is_own,
        notice,
        may_always=form is not None and row.may_cover_chat(user),
        covers_chat=form is not None and _covers_chat(row),
    )


def _covers_chat(row: Question) -> bool:
    """Whether staff let a tool run unasked after its first approval in a chat."""
    if row.kind != Question.Kind.APPROVAL:
        return False
    tools = Tool.objects.select_related("http", "mcp__server")
    tool = tools.filter(name=row.tool_call.name).first()
    used = tool.build_tool() if tool else None
    return bool(used and used.approval and used.approval.policy == "first")


def _may_answer(row: Question, user: Any, is_own: bool) -> bool:
    if row.kind == Question.Kind.SIGN_IN:  # only for one's own messages
        written = Turn.objects.written_by(user)
        return written.filter(pk=row.tool_call.turn_id).exists()
    if row.group_id is None:
        conversation = row.tool_call.turn.conversation
        return is_own or role_of(user, conversation) == Role.APPROVER
    return bool(user.groups.filter(pk=row.group_id).exists())


def _visible_questions(request: HttpRequest) -> Any:
    """Questions that the user may answer, and all of the conversations that the user
    sees."""
    turns = Turn.objects.visible_to(request.user).filter(deleted_at=None)
    seen = Q(tool_call__turn__in=turns.values("pk"))
    answerable = Question.objects.answerable_by(request.user)
    return _with_parts(
        Question.objects.filter(seen | Q(pk__in=answerable.values("pk")))
    )


def _with_parts(rows: Any) -> Any:
    return rows.select_related(
        "group", "server", "decided_by", "tool_call__turn__conversation__owner"
    )


def _render_refusal(request: HttpRequest, row: Question) -> HttpResponse:
    is_open = row.state == Question.State.OPEN
    notice, status = (_NOT_ALLOWED, 403) if is_open else (_ALREADY_DECIDED, 409)
    return render_card(request, card(row, request.user, notice=str(notice)), status)


def _render_decision(request: HttpRequest, row: Question) -> HttpResponse:
    if _is_script(request):
        return render_card(request, card(row, request.user))
    turn = row.tool_call.turn
    is_visible = Turn.objects.visible_to(request.user).filter(pk=turn.pk).exists()
    if not is_visible:
        return redirect("questions")
    page = reverse("conversation", args=[turn.conversation_id])
    return redirect(f"{page}#turn-{turn.pk}")


def render_card(
    request: HttpRequest, question_card: QuestionCard, status: int = 200
) -> HttpResponse:
    name = "_question" if _is_script(request) else "question"
    template = f"conversations/{name}.html"
    return render(request, template, {"card": question_card}, status=status)


def _is_script(request: HttpRequest) -> bool:
    return request.headers.get("X-Requested-With") == "fetch"

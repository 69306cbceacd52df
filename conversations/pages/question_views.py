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
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from conversations.access.participation import role_of
from conversations.models import AlreadyDecided, Question
from conversations.models.participant import Role
from conversations.pages.question_forms import ApprovalForm, SchemaForm, form_for

_LONGEST_LIST = 100
_NOT_ALLOWED = "You may not decide this question; your answer was not used."
_ALREADY_DECIDED = "The question was already decided; your answer was not used."


@dataclass(frozen=True, slots=True)
class QuestionCard:
    """A question as one user sees it."""

    question: Question
    form: ApprovalForm | SchemaForm | None  # None where this user may not answer
    is_own: bool  # it belongs to a conversation of this user
    notice: str = ""


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def question(request: HttpRequest, question_id: str) -> HttpResponse:
    """A question's card: a fragment for requests by script, else a page."""
    found = get_object_or_404(_visible_questions(request), pk=question_id)
    if request.method != "POST":
        return _render(request, card(found, request.user))
    submitted = card(found, request.user, request.POST)
    if submitted.form is None:
        return _render_refusal(request, found)
    if not submitted.form.is_valid():
        return _render(request, submitted, status=400)
    try:
        is_accepted = submitted.form.decide(request.user)
    except AlreadyDecided:
        found.refresh_from_db()
        return _render_refusal(request, found)
    return (
        _render_decision(request, found)
        if is_accepted
        else _render(request, submitted, status=400)
    )


@login_required
@never_cache
@require_GET
def questions(request: HttpRequest) -> HttpResponse:
    """All open questions that this user may decide, the oldest first."""
    rows = _with_parts(Question.objects.open().answerable_by(request.user))
    cards = [card(row, request.user) for row in rows.distinct()[:_LONGEST_LIST]]
    return render(request, "conversations/questions.html", {"cards": cards})


def card(row: Question, user: Any, data: Any = None, notice: str = "") -> QuestionCard:
    is_own = row.tool_call.turn.conversation.owner_id == user.pk
    may_answer = row.state == Question.State.OPEN and _may_answer(row, user, is_own)
    return QuestionCard(
        row, form_for(row, data) if may_answer else None, is_own, notice
    )


def _may_answer(row: Question, user: Any, is_own: bool) -> bool:
    if row.group_id is None:
        conversation = row.tool_call.turn.conversation
        return is_own or role_of(user, conversation) == Role.APPROVER
    return bool(user.groups.filter(pk=row.group_id).exists())


def _visible_questions(request: HttpRequest) -> Any:
    """Questions that the user may answer, and all of the user's own conversations."""
    own = Q(
        tool_call__turn__conversation__owner_id=request.user.pk,
        tool_call__turn__conversation__deleted_at=None,
        tool_call__turn__deleted_at=None,
    )
    answerable = Question.objects.answerable_by(request.user)
    return _with_parts(Question.objects.filter(own | Q(pk__in=answerable.values("pk"))))


def _with_parts(rows: Any) -> Any:
    return rows.select_related(
        "group", "decided_by", "tool_call__turn__conversation__owner"
    )


def _render_refusal(request: HttpRequest, row: Question) -> HttpResponse:
    is_open = row.state == Question.State.OPEN
    notice, status = (_NOT_ALLOWED, 403) if is_open else (_ALREADY_DECIDED, 409)
    return _render(request, card(row, request.user, notice=notice), status)


def _render_decision(request: HttpRequest, row: Question) -> HttpResponse:
    if _is_script(request):
        return _render(request, card(row, request.user))
    turn = row.tool_call.turn
    if turn.conversation.owner_id != request.user.pk:
        return redirect("questions")
    page = reverse("conversation", args=[turn.conversation_id])
    return redirect(f"{page}#turn-{turn.pk}")


def _render(
    request: HttpRequest, question_card: QuestionCard, status: int = 200
) -> HttpResponse:
    name = "_question" if _is_script(request) else "question"
    template = f"conversations/{name}.html"
    return render(request, template, {"card": question_card}, status=status)


def _is_script(request: HttpRequest) -> bool:
    return request.headers.get("X-Requested-With") == "fetch"

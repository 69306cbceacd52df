"""Views of the chat pages.

Everything works with links and forms alone; static/js adds live updates.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from conversations import engine
from conversations.access import admission
from conversations.access.errors import TooFast
from conversations.engine.continuation import continue_message
from conversations.engine.message_bounds import CannotContinue, halts
from conversations.models import (
    Conversation,
    ConversationQuerySet,
    Item,
    ToolCall,
    Turn,
)
from conversations.pages.forms import SUGGESTIONS, MessageForm, RetryForm, TitleForm
from conversations.pages.sidebar import PAGE, Sidebar, sidebar
from conversations.pages.transcript import (
    Transcript,
    render_turns,
    transcript,
    with_parts,
)
from conversations.turns.attachments import UploadRefused
from conversations.turns.tool_choices import choose_tools
from llm.wire.items import text_of
from tools.models.declared_tool import ToolNotAllowed

_MODELS = ("language_model", "preset__language_model")
CONVERSATION_DELETED = (
    "This conversation is gone. Your message is kept: send it to begin a new one."
)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def chat(request: HttpRequest) -> HttpResponse:
    """The page for a new conversation; the first message creates it."""
    form = MessageForm(request.POST or None, request.FILES, user=request.user)
    if opened := _open_turn(request, form):
        return _redirect_to_turn(opened)
    return _page(request, form)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    row = (
        _own_conversations(request).select_related(*_MODELS).filter(pk=conversation_id)
    )
    if (found := row.first()) is None:
        return _deleted_conversation_page(request)
    anchors = {name: request.GET.get(name, "") for name in ("before", "at")}
    window = transcript(found, **anchors)
    last = window.turns[-1].turn.language_model if window.turns else None
    data = request.POST if request.method == "POST" else None
    form = MessageForm(
        data, request.FILES, user=request.user, conversation=found, last_model=last
    )
    if opened := _open_turn(request, form):
        return _redirect_to_turn(opened)
    return _page(request, form, window)


@login_required
@never_cache
@require_GET
def turn(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """One turn of the transcript, which replaces its live rendering."""
    found = get_object_or_404(
        with_parts(Turn.objects.of(request.user)),
        pk=turn_id,
        conversation_id=conversation_id,
    )
    return render(
        request, "conversations/_turn.html", {"shown": render_turns([found])[0]}
    )


@login_required
@never_cache
@require_GET
def text(
    request: HttpRequest, conversation_id: str, turn_id: str, index: int
) -> HttpResponse:
    """The next part of a long message, which the page appends to the previous one."""
    # Imported here: at the top it would delay the start by loading the parser.
    from conversations.pages.markdown import render_part

    found = _turn(request, conversation_id, turn_id)
    outputs = found.items.filter(origin=Item.Origin.OUTPUT).order_by("position")
    if (item := outputs[index : index + 1].first()) is None:
        raise Http404
    part = render_part(
        text_of(item.payload), _parse_number(request.GET.get("from", ""), 0)
    )
    context = {"turn": found, "part": part, "index": index}
    return render(request, "conversations/text.html", context)


@login_required
@require_POST
def stop(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    found = _turn(request, conversation_id, turn_id)
    engine.cancel(found)
    return _redirect_to_turn(found)


@login_required
@require_POST
def retry(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """Send a turn's message again as a new turn; the first answer stays."""
    found = _turn(request, conversation_id, turn_id)
    form = RetryForm(request.POST, turn=found, user=request.user)
    if form.items() and (opened := _open_turn(request, form)):
        return _redirect_to_turn(opened)
    return _page(request, form, transcript(found.conversation))


@login_required
@require_POST
def continue_turn(
    request: HttpRequest, conversation_id: str, turn_id: str
) -> HttpResponse:
    """Continue a message that was halted: reset its limits of turns and cost."""
    found = _turn(request, conversation_id, turn_id)
    try:
        admission.take_user_request(request.user, admission.request_size(request))
        with suppress(CannotContinue):  # another tab has continued it already
            found = continue_message(found, request.user)
    except TooFast as exc:
        return _rate_limited_page(request, found.conversation, exc)
    return _redirect_to_turn(found)


@login_required
@require_POST
def set_tools(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Set the conversation's tools to those whose boxes are ticked."""
    row = get_object_or_404(_own_conversations(request), pk=conversation_id)
    choose_tools(request.user, row, request.POST.getlist("tool"))
    return redirect("conversation", row.pk)


@login_required
@never_cache
@require_GET
def background(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The background calls as a fragment, which replaces the one on the page."""
    row = get_object_or_404(_own_conversations(request), pk=conversation_id)
    last = row.turns.order_by("-created_at", "-id").first()
    context = {**_background(row, last), "conversation": row}
    return render(request, "conversations/_background.html", context)


@login_required
@require_POST
def cancel_call(
    request: HttpRequest, conversation_id: str, call_id: int
) -> HttpResponse:
    calls = ToolCall.objects.of(request.user)
    found = calls.filter(turn__conversation_id=conversation_id, pk=call_id)
    engine.cancel_call(get_object_or_404(found))
    return redirect("conversation", conversation_id)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def rename(request: HttpRequest, conversation_id: str) -> HttpResponse:
    row = get_object_or_404(_own_conversations(request), pk=conversation_id)
    title = row.title
    form = TitleForm(request.POST or None, instance=row)
    # Redirect to the open conversation, which may be another than the renamed one.
    current = request.GET.get("current", row.pk).replace("\0", "")[:64]
    is_open = _own_conversations(request).filter(pk=current).exists()
    back = reverse("conversation", args=[current]) if is_open else reverse("chat")
    if form.is_valid():
        engine.announce_rename(form.save())
        return redirect(back)
    context = {"conversation": row, "title": title, "form": form, "back": back}
    return render(request, "conversations/rename.html", context)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, conversation_id: str) -> HttpResponse:
    row = get_object_or_404(_own_conversations(request), pk=conversation_id)
    if request.method == "POST":
        row.delete_softly()
        return redirect("chat")
    return render(request, "conversations/delete.html", {"conversation": row})


@login_required
@never_cache
@require_GET
def conversation_list(request: HttpRequest) -> HttpResponse:
    """The sidebar's list as a fragment, for open pages when the list changes."""
    context = {"sidebar": _sidebar(request), "current": request.GET.get("current")}
    return render(request, "conversations/_list.html", context)


def _open_turn(request: HttpRequest, form: MessageForm | RetryForm) -> Turn | None:
    """The new turn; None if the form is invalid or the user exceeds a limit."""
    if not form.is_valid():
        return None
    try:
        size = admission.request_size(request)
        admission.take_user_request(request.user, size)
        return form.open_turn()
    except ToolNotAllowed as exc:
        form.add_error(None, str(exc))
    except UploadRefused as exc:
        form.add_error("file" if "file" in form.fields else None, str(exc))
    except TooFast as exc:
        form.add_error(None, str(exc))
        form.retry_after = math.ceil(exc.retry_after or 1)
    return None


def _rate_limited_page(
    request: HttpRequest, row: Conversation, exc: TooFast
) -> HttpResponse:
    """The conversation's page with the user's unsent text and the rate-limit error."""
    form = MessageForm(request.POST, user=request.user, conversation=row)
    form.errors.clear()  # this form may have no message
    form.add_error(None, str(exc))
    form.retry_after = math.ceil(exc.retry_after or 1)
    return _page(request, form, transcript(row))


def _background(row: Conversation | None, last: Turn | None) -> dict[str, Any]:
    """Template context: background calls, and halted messages that can be continued.

    `last` is the conversation's last turn.
    """
    if row is None:
        return {"background": [], "halts": []}
    found = ToolCall.objects.background_or_halted().filter(turn__conversation=row)
    calls = list(found.order_by("started_at", "pk"))
    return {
        "background": [call for call in calls if call.state not in ToolCall.FINISHED],
        "halts": halts(calls, last),
    }


def _own_conversations(request: HttpRequest) -> ConversationQuerySet:
    return Conversation.objects.of(request.user)


def _turn(request: HttpRequest, conversation_id: str, turn_id: str) -> Turn:
    parts = [f"conversation__{name}" for name in _MODELS]
    turns = Turn.objects.of(request.user).select_related(*parts)
    return get_object_or_404(turns, pk=turn_id, conversation_id=conversation_id)


def _sidebar(request: HttpRequest) -> Sidebar:
    query = request.GET
    return sidebar(
        request.user,
        _parse_number(query.get("chats", ""), PAGE),
        query.get("q", "").replace("\0", ""),
        query.get("before", "").replace("\0", "")[:64],
        _parse_number(query.get("from", ""), 0),
    )


def _parse_number(text: str, otherwise: int) -> int:
    return int(text[:9]) if text.isascii() and text.isdecimal() else otherwise


def _redirect_to_turn(found: Turn) -> HttpResponse:
    page = reverse("conversation", args=[found.conversation_id])
    return redirect(f"{page}#turn-{found.pk}")


def _deleted_conversation_page(request: HttpRequest) -> HttpResponse:
    """The page for a new conversation, with the text sent to a deleted one."""
    if request.method != "POST":
        raise Http404
    form = MessageForm(request.POST, user=request.user)
    form.errors.clear()  # other errors appear when the text is sent again
    form.add_error(None, CONVERSATION_DELETED)
    return _page(request, form, status=404)


def _page(
    request: HttpRequest,
    form: MessageForm | RetryForm,
    window: Transcript | None = None,
    status: int | None = None,
) -> HttpResponse:
    last = window.turns[-1].turn if window and window.has_last else None
    context = {
        "form": form,
        "conversation": form.conversation,
        "current": form.conversation.pk if form.conversation else "",
        "transcript": window,
        **_background(form.conversation, last),
        "limits": _limits(),
        "suggestions": SUGGESTIONS,
        "sidebar": _sidebar(request),
    }
    status = status or (400 if form.is_bound else 200)
    if form.retry_after is None:
        return render(request, "conversations/chat.html", context, status=status)
    response = render(request, "conversations/chat.html", context, status=429)
    response["Retry-After"] = str(form.retry_after)
    return response


def _limits() -> dict[str, int]:
    """Limits that the browser checks before sending."""
    return {
        "size": settings.MAX_UPLOAD_SIZE,
        "count": settings.MAX_UPLOAD_COUNT,
        "text": settings.MAX_INPUT_SIZE,
    }

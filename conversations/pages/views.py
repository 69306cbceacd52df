"""Views of the chat pages.

Everything works with links and forms alone; static/js adds live updates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from conversations import engine
from conversations.access import admission
from conversations.access.errors import TooFast
from conversations.access.participation import role_of
from conversations.engine.database import disk_space
from conversations.engine.message_consequences import CannotContinue, halts
from conversations.models import (
    Conversation,
    ConversationQuerySet,
    Item,
    LastSeen,
    MessageRemoved,
    ToolCall,
    Turn,
)
from conversations.models.idempotency_key import IDEMPOTENCY_DAYS
from conversations.models.keyboard_shortcuts import ACTIONS
from conversations.models.participant import Role
from conversations.pages.branches.notices import deletion_notice
from conversations.pages.forms.message_form import SUGGESTIONS, MessageForm
from conversations.pages.forms.retry_form import RetryForm
from conversations.pages.forms.title_form import TitleForm
from conversations.pages.item_views import read_gauge
from conversations.pages.notices.next_page_message import say_saved
from conversations.pages.queue_views import queue_context
from conversations.pages.refusals import mark_refused
from conversations.pages.settings.limit_views import tightest_limits
from conversations.pages.sidebar import PAGE, Sidebar, sidebar
from conversations.pages.transcript import (
    Transcript,
    render_turns,
    transcript,
    with_parts,
)
from conversations.requests.branches import continue_turn as continue_turn_of
from conversations.requests.dictation import may_dictate
from conversations.requests.errors import AlreadySentConflict
from conversations.requests.queue_changes import stop_turn
from conversations.turns import waiting_messages
from conversations.turns.attachments import UploadRefused
from conversations.turns.tool_choices import choose_tools
from tools.models.declared_tool import ToolNotAllowed

#: Followed by the key of a message; static/js/people/arrival.js reads it.
ARRIVED_COOKIE = "parley_sent_"
_ARRIVED_FOR = 60  # seconds, until the next page has read it
_COOKIE_NAME = re.compile(r"[\w-]+", re.ASCII)
_MAX_INDEX = 1_000_000  # of an item in an answer; a database has a largest number
_MODELS = ("language_model", "preset__language_model", "folder__language_model")
REMOVED = _(
    "This message was sent and then removed from the queue. Send it again if you want"
    " it back."
)
_TURN_PARTS = ("conversation__owner", *(f"conversation__{name}" for name in _MODELS))
CONVERSATION_DELETED = _(
    "This conversation no longer exists. Your message is still here: send it to begin"
    " a new one."
)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def chat(request: HttpRequest) -> HttpResponse:
    """The page for a new conversation; the first message creates it."""
    form = MessageForm(
        request.POST or None,
        request.FILES,
        user=request.user,
        folder_id=request.GET.get("folder", ""),
        session_key=request.session.session_key,
    )
    if opened := open_turn(request, form):
        return _arrived(opened, form)
    return _page(request, form)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    visible = Conversation.objects.visible_to(request.user)
    row = visible.select_related("owner", *_MODELS).filter(pk=conversation_id)
    if (found := row.first()) is None:
        return _deleted_conversation_page(request)
    anchors = {name: request.GET.get(name, "") for name in ("before", "at", "branch")}
    window = transcript(found, request.user, **anchors)
    last = window.turns[-1].turn.language_model if window.turns else None
    data = request.POST if request.method == "POST" else None
    form = MessageForm(
        data, request.FILES, user=request.user, conversation=found, last_model=last
    )
    if request.method == "POST" and role_of(request.user, found) == Role.VIEWER:
        raise PermissionDenied
    if opened := open_turn(request, form):
        return _arrived(opened, form)
    if request.method != "POST" and window.is_latest:
        shown = window.turns[-1].turn if window.turns else None
        _note_page(request.user, found, shown)
    return _page(request, form, window)


def _note_page(user: Any, row: Conversation, last: Turn | None) -> None:
    """Note that the user sees the page; a full disk keeps nobody from reading it."""
    try:
        with transaction.atomic(savepoint=False):
            LastSeen.objects.note_page(user, row, last)
    except OperationalError as exc:
        if not disk_space.report_full(exc):
            raise


@login_required
@never_cache
@require_GET
def turn(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """One turn of the transcript, which replaces its live rendering."""
    found = get_object_or_404(
        with_parts(Turn.objects.visible_to(request.user)),
        pk=turn_id,
        conversation_id=conversation_id,
    )
    waiting = waiting_messages.load(conversation_id) if found.is_queued else []
    context = {
        "shown": render_turns([found], request.user)[0],
        "waiting_ids": {each.pk for each in waiting},
    }
    return render(request, "conversations/_turn.html", context)


@login_required
@never_cache
@require_GET
def text(
    request: HttpRequest, conversation_id: str, turn_id: str, index: int
) -> HttpResponse:
    """The next part of a long message, which the page appends to the previous one."""
    # Imported here: at the top it would delay the start by loading the parser.
    from conversations.pages.markdown import render_part
    from conversations.pages.reading.citations import citations_of, marked_text
    from conversations.pages.reading.link_marks import Places

    visible = Turn.objects.visible_to(request.user)
    found = get_object_or_404(visible, pk=turn_id, conversation_id=conversation_id)
    if index > _MAX_INDEX:
        raise Http404
    outputs = found.items.filter(origin=Item.Origin.OUTPUT).order_by("position")
    item = outputs[index : index + 1].first()
    if item is None or item.type != "message":
        raise Http404
    places = Places(found.pk, str(index), len(citations_of(item.payload)))
    start = _parse_number(request.GET.get("from", ""), 0)
    part = render_part(marked_text(item.payload), start, places)
    context = {"turn": found, "part": part, "index": index}
    return render(request, "conversations/text.html", context)


@login_required
@require_POST
def refresh(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """The page of a running turn anew. It is a form, as a link would lose what is
    written in the message box meanwhile."""
    turns = Turn.objects.visible_to(request.user).select_related(*_TURN_PARTS)
    found = get_object_or_404(turns, pk=turn_id, conversation_id=conversation_id)
    return return_to_turn(request, found)


@login_required
@require_POST
def stop(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    found = _writable_turn(request, conversation_id, turn_id)
    stopped: Iterable[Turn] = [found]
    if "beside" in request.GET and found.comparison:
        turns = Turn.objects.writable_by(request.user).not_finished()
        same = {"conversation_id": conversation_id, "comparison": found.comparison}
        stopped = turns.select_related(*_TURN_PARTS).filter(**same)
    for turn in stopped:
        with suppress(AlreadySentConflict):  # its text is in the answer that runs
            stop_turn(turn)
    return return_to_turn(request, found)


@login_required
@require_POST
def retry(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """Send a turn's message again as a turn beside it; the first answer stays."""
    found = _writable_turn(request, conversation_id, turn_id)
    form = RetryForm(request.POST, turn=found, user=request.user)
    if form.items() and (opened := open_turn(request, form)):
        return return_to_turn(request, opened)
    return _page(request, form, transcript(found.conversation, request.user))


@login_required
@require_POST
def continue_turn(
    request: HttpRequest, conversation_id: str, turn_id: str
) -> HttpResponse:
    """Go on with a message that was halted, or with an answer that was cut off."""
    found = _writable_turn(request, conversation_id, turn_id)
    try:
        admission.take_user_request(request.user, admission.request_size(request))
        with suppress(CannotContinue):  # another tab has continued it already
            found = continue_turn_of(found, request.user)
    except TooFast as exc:
        return _refused_page(request, found.conversation, exc)
    return return_to_turn(request, found)


@login_required
@require_POST
def set_tools(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Set the conversation's tools to those whose boxes are ticked."""
    row = get_object_or_404(_own_conversations(request), pk=conversation_id)
    choose_tools(request.user, row, request.POST.getlist("tool"))
    if _has_unsent(request):
        return _unsent_page(request, row)
    return redirect(_end_of(row.pk))


@login_required
@never_cache
@require_GET
def background(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The background calls as a fragment, which replaces the one on the page."""
    visible = Conversation.objects.visible_to(request.user)
    row = get_object_or_404(visible, pk=conversation_id)
    last = row.last_turn_for(request.user.pk or 0)
    context = {**_background(row, last), "conversation": row}
    return render(request, "conversations/_background.html", context)


@login_required
@require_POST
def cancel_call(
    request: HttpRequest, conversation_id: str, call_id: int
) -> HttpResponse:
    calls = ToolCall.objects.writable_by(request.user)
    calls = calls.select_related("turn__conversation")
    found = calls.filter(turn__conversation_id=conversation_id, pk=call_id)
    call = get_object_or_404(found)
    engine.cancel_call(call)
    if _has_unsent(request):
        return _unsent_page(request, call.turn.conversation)
    return redirect(_end_of(conversation_id))


def _end_of(conversation_id: str) -> str:
    """The address of the message box, to return to after an action beside it."""
    return f"{reverse('conversation', args=[conversation_id])}#end"


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def rename(request: HttpRequest, conversation_id: str) -> HttpResponse:
    row = get_object_or_404(_own_conversations(request), pk=conversation_id)
    title = row.title
    form = TitleForm(request.POST or None, instance=row)
    # Redirect to the open conversation, which may be another than the renamed one.
    current = request.GET.get("current", row.pk).replace("\0", "")[:64]
    is_open = Conversation.objects.visible_to(request.user).filter(pk=current).exists()
    back = reverse("conversation", args=[current]) if is_open else reverse("chat")
    if form.is_valid():
        engine.announce_rename(form.save())
        say_saved(request)
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
        return redirect(f"{reverse('chat')}?deleted={row.pk}")
    return render(request, "conversations/delete.html", {"conversation": row})


@login_required
@never_cache
@require_GET
def conversation_list(request: HttpRequest) -> HttpResponse:
    """The sidebar's list as a fragment, for open pages when the list changes."""
    context = {"sidebar": _sidebar(request), "current": request.GET.get("current")}
    return render(request, "conversations/_list.html", context)


def open_turn(request: HttpRequest, form: MessageForm | RetryForm) -> Turn | None:
    """The new turn; None if the form is invalid or the user exceeds a limit."""
    if not form.is_valid():
        return None
    try:
        size = admission.request_size(request)
        admission.take_user_request(request.user, size)
        return form.open_turn()
    except ToolNotAllowed as exc:
        form.add_error(None, str(exc))
    except MessageRemoved:
        form.add_error(None, REMOVED)
        form.renew_key()
    except UploadRefused as exc:
        form.add_error("file" if "file" in form.fields else None, str(exc))
    except TooFast as exc:
        form.refuse(exc)
    return None


def _refused_page(
    request: HttpRequest, row: Conversation, exc: TooFast
) -> HttpResponse:
    """The conversation's page with the user's unsent text and the refusal."""
    form = _unsent_form(request, row)
    form.refuse(exc)
    return _page(request, form, transcript(row, request.user))


def _unsent_form(request: HttpRequest, row: Conversation) -> MessageForm:
    form = MessageForm(request.POST, user=request.user, conversation=row)
    form.errors.clear()  # this form may have no message
    return form


def return_to_turn(request: HttpRequest, found: Turn) -> HttpResponse:
    """Back to the turn, with a message that was written but not sent: without scripts
    a button beside the message box sends what is in it."""
    if not _has_unsent(request):
        return redirect_to_turn(found)
    return _unsent_page(request, found.conversation, at=found.pk)


def _has_unsent(request: HttpRequest) -> bool:
    return bool(request.POST.get("text", "").strip() or request.FILES)


def _unsent_page(
    request: HttpRequest, row: Conversation, **window: str
) -> HttpResponse:
    """The conversation's page with what is written but not sent."""
    shown = transcript(row, request.user, **window)
    return _page(request, _unsent_form(request, row), shown, status=200)


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


def find_turn(request: HttpRequest, conversation_id: str, turn_id: str) -> Turn:
    turns = Turn.objects.of(request.user).select_related(*_TURN_PARTS)
    return get_object_or_404(turns, pk=turn_id, conversation_id=conversation_id)


def _writable_turn(request: HttpRequest, conversation_id: str, turn_id: str) -> Turn:
    turns = Turn.objects.writable_by(request.user).select_related(*_TURN_PARTS)
    return get_object_or_404(turns, pk=turn_id, conversation_id=conversation_id)


def _sidebar(request: HttpRequest) -> Sidebar:
    query = request.GET
    return sidebar(
        request.user,
        _parse_number(query.get("chats", ""), PAGE),
        query.get("q", "").replace("\0", ""),
        query.get("before", "").replace("\0", "")[:64],
        _parse_number(query.get("from", ""), 0),
        _parse_number(query.get("folder", ""), 0) or None,
    )


def _parse_number(text: str, otherwise: int) -> int:
    return int(text[:9]) if text.isascii() and text.isdecimal() else otherwise


def _arrived(opened: Turn, form: MessageForm) -> HttpResponse:
    """Tells the browser's scripts which message has arrived, by its form's key."""
    response = redirect_to_turn(opened)
    key = form.cleaned_data["key"]
    if _COOKIE_NAME.fullmatch(key):
        response.set_cookie(
            f"{ARRIVED_COOKIE}{key}",
            "1",
            max_age=_ARRIVED_FOR,
            secure=settings.SESSION_COOKIE_SECURE,
            samesite="Lax",
        )
    return response


def redirect_to_turn(found: Turn) -> HttpResponse:
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


def show_new_chat(request: HttpRequest, text: str) -> HttpResponse:
    """The page for a new conversation, with an unsent text in its message box."""
    form = MessageForm({"text": text}, user=request.user)
    form.errors.clear()
    return _page(request, form, status=200)


def _page(
    request: HttpRequest,
    form: MessageForm | RetryForm,
    window: Transcript | None = None,
    status: int | None = None,
) -> HttpResponse:
    last = window.turns[-1].turn if window and window.has_last else None
    context = {
        "form": form,
        # No page can fill in a field for files.
        "lost_files": [file.name for file in request.FILES.getlist("file")],
        "conversation": form.conversation,
        "current": form.conversation.pk if form.conversation else "",
        "transcript": window,
        "context_use": read_gauge(form.conversation),
        "limits_left": tightest_limits(request.user),
        **_background(form.conversation, last),
        **queue_context(form.conversation, request.user),
        "limits": _limits(),
        "dictation_seconds": _dictation_seconds(request),
        "suggestions": SUGGESTIONS,
        "shortcut_actions": ACTIONS,
        "key_days": IDEMPOTENCY_DAYS,
        "sidebar": _sidebar(request),
        **deletion_notice(request, form.conversation),
        "guest": role_of(request.user, form.conversation) if form.conversation else "",
    }
    status = status or (400 if form.is_bound else 200)
    page = render(request, "conversations/chat.html", context, status=status)
    return mark_refused(page, form.refusal) if form.refusal else page


def _dictation_seconds(request: HttpRequest) -> int:
    """How long a recording may be for the model of staff; 0 without one."""
    return settings.DICTATION_MAX_SECONDS if may_dictate(request.user) else 0


def _limits() -> dict[str, int]:
    """Limits that the browser checks before sending."""
    return {
        "size": settings.MAX_UPLOAD_SIZE,
        "count": settings.MAX_UPLOAD_COUNT,
        "text": settings.MAX_INPUT_SIZE,
    }

"""The pages. Each view admits, reads or opens something of the user's own, and renders.

Everything works by links and forms; static/js makes it live.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from conversations import engine
from conversations.attachments import UploadRefused
from conversations.forms import SUGGESTIONS, MessageForm, RetryForm, TitleForm
from conversations.models import Conversation, ConversationQuerySet, ToolCall, Turn
from conversations.sidebar import PAGE, Sidebar, sidebar
from conversations.tool_choices import choose_tools
from conversations.transcript import Transcript, shown, transcript, with_parts

_MODELS = ("language_model", "preset__language_model")
GONE = "This conversation is gone. Your message is kept: send it to begin a new one."


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def chat(request: HttpRequest) -> HttpResponse:
    """A page to begin a conversation; the first message makes it."""
    form = MessageForm(request.POST or None, request.FILES, user=request.user)
    if opened := _opened(form):
        return _to(opened)
    return _page(request, form)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    row = _own(request).select_related(*_MODELS).filter(pk=conversation_id)
    if (found := row.first()) is None:
        return _gone(request)
    places = {name: request.GET.get(name, "") for name in ("before", "at")}
    window = transcript(found, **places)
    last = window.turns[-1].turn.language_model if window.turns else None
    data = request.POST if request.method == "POST" else None
    form = MessageForm(
        data, request.FILES, user=request.user, conversation=found, last_model=last
    )
    if opened := _opened(form):
        return _to(opened)
    return _page(request, form, window)


@login_required
@never_cache
@require_GET
def turn(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """One turn of the transcript, to be put in the place of its live rendering."""
    found = get_object_or_404(
        with_parts(Turn.objects.of(request.user)),
        pk=turn_id,
        conversation_id=conversation_id,
    )
    return render(request, "conversations/_turn.html", {"shown": shown([found])[0]})


@login_required
@require_POST
def stop(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    found = _turn(request, conversation_id, turn_id)
    engine.cancel(found)
    return _to(found)


@login_required
@require_POST
def retry(request: HttpRequest, conversation_id: str, turn_id: str) -> HttpResponse:
    """Send a turn's question again; what became of it the first time stays."""
    found = _turn(request, conversation_id, turn_id)
    form = RetryForm(request.POST, turn=found, user=request.user)
    if form.is_valid() and form.items():
        return _to(form.open_turn())
    return _page(request, form, transcript(found.conversation), status=400)


@login_required
@require_POST
def choose(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Which tools the conversation uses: those whose boxes are ticked."""
    row = get_object_or_404(_own(request), pk=conversation_id)
    choose_tools(request.user, row, request.POST.getlist("tool"))
    return redirect("conversation", row.pk)


@login_required
@never_cache
@require_GET
def background(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The strip of calls that go on in the background, to be put in place again."""
    row = get_object_or_404(_own(request), pk=conversation_id)
    context = {"background": _background(row), "conversation": row}
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
    row = get_object_or_404(_own(request), pk=conversation_id)
    title = row.title
    form = TitleForm(request.POST or None, instance=row)
    if form.is_valid():
        form.save()
        return redirect("conversation", row.pk)
    context = {"conversation": row, "title": title, "form": form}
    return render(request, "conversations/rename.html", context)


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, conversation_id: str) -> HttpResponse:
    row = get_object_or_404(_own(request), pk=conversation_id)
    if request.method == "POST":
        row.delete_softly()
        return redirect("chat")
    return render(request, "conversations/delete.html", {"conversation": row})


@login_required
@never_cache
@require_GET
def conversation_list(request: HttpRequest) -> HttpResponse:
    """The sidebar's list by itself, for pages that are open when it changes."""
    context = {"sidebar": _sidebar(request), "current": request.GET.get("current")}
    return render(request, "conversations/_list.html", context)


def _opened(form: MessageForm) -> Turn | None:
    """The turn, where the form is right."""
    if not form.is_valid():
        return None
    try:
        return form.open_turn()
    except UploadRefused as exc:
        form.add_error("file", str(exc))
        return None


def _background(row: Conversation | None) -> list[ToolCall]:
    if row is None:
        return []
    calls = ToolCall.objects.in_background().filter(turn__conversation=row)
    return list(calls.order_by("started_at", "pk"))


def _own(request: HttpRequest) -> ConversationQuerySet:
    return Conversation.objects.of(request.user)


def _turn(request: HttpRequest, conversation_id: str, turn_id: str) -> Turn:
    parts = [f"conversation__{name}" for name in _MODELS]
    turns = Turn.objects.of(request.user).select_related(*parts)
    return get_object_or_404(turns, pk=turn_id, conversation_id=conversation_id)


def _sidebar(request: HttpRequest) -> Sidebar:
    size = request.GET.get("chats", "")
    query = request.GET.get("q", "").replace("\0", "")
    return sidebar(request.user, int(size[:6]) if size.isdecimal() else PAGE, query)


def _to(found: Turn) -> HttpResponse:
    page = reverse("conversation", args=[found.conversation_id])
    return redirect(f"{page}#turn-{found.pk}")


def _gone(request: HttpRequest) -> HttpResponse:
    """What was written to a deleted conversation is not lost with it."""
    if request.method != "POST":
        raise Http404
    form = MessageForm(request.POST, user=request.user)
    form.errors.clear()  # what else may be wrong can wait
    form.add_error(None, GONE)
    return _page(request, form, status=404)


def _page(
    request: HttpRequest,
    form: MessageForm | RetryForm,
    window: Transcript | None = None,
    status: int | None = None,
) -> HttpResponse:
    context = {
        "form": form,
        "conversation": form.conversation,
        "current": form.conversation.pk if form.conversation else "",
        "transcript": window,
        "background": _background(form.conversation),
        "limits": _limits(),
        "suggestions": SUGGESTIONS,
        "sidebar": _sidebar(request),
    }
    status = status or (400 if form.is_bound else 200)
    return render(request, "conversations/chat.html", context, status=status)


def _limits() -> dict[str, int]:
    """What the browser refuses before anything is sent."""
    return {
        "size": settings.MAX_UPLOAD_SIZE,
        "count": settings.MAX_UPLOAD_COUNT,
        "text": settings.MAX_INPUT_SIZE,
    }

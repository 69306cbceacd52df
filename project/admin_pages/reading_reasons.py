"""Staff who read what others have written say why, and each such page is recorded.

The reason is asked once in a session. What is one's own needs none and is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django import forms
from django.apps import apps
from django.conf import settings
from django.contrib.admin import AdminSite
from django.contrib.admin.utils import unquote
from django.contrib.auth import get_user_model
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.translation import gettext_lazy as _

from conversations.audit.act import READING_REASON, current_act
from conversations.audit.record import record_event

#: By the name of a page of one row: the row's model, the look-up of its owner and the
#: argument of the address with its key.
_OF_TURN, _OF_CONVERSATION = "turn__conversation__owner", "conversation__owner"
PAGES: dict[str, tuple[str, str, str]] = {
    "conversations_conversation_change": ("Conversation", "owner", "object_id"),
    "conversations_turn_change": ("Turn", _OF_CONVERSATION, "object_id"),
    "conversations_turn_events": ("Turn", _OF_CONVERSATION, "pk"),
    "conversations_item_change": ("Item", _OF_TURN, "object_id"),
    "conversations_toolcall_change": ("ToolCall", _OF_TURN, "object_id"),
    "conversations_question_change": (
        "Question",
        f"tool_call__{_OF_TURN}",
        "object_id",
    ),
    "conversations_attachment_change": ("Attachment", _OF_CONVERSATION, "object_id"),
    "conversations_memory_change": ("Memory", "user", "object_id"),
    "conversations_folder_change": ("Folder", "owner", "object_id"),
    "conversations_savedprompt_change": ("SavedPrompt", "owner", "object_id"),
    "conversations_usersettings_change": ("UserSettings", "user", "object_id"),
    "conversations_loggedrequest_change": ("LoggedRequest", "token__user", "object_id"),
    "conversations_rating_change": ("Rating", _OF_TURN, "object_id"),
    "conversations_replay_turn": ("ReplayedTurn", _OF_TURN, "row"),
    "llm_modelcall_exchange": ("llm.ModelCall", "user", "pk"),
}
#: Actions of lists that give out the content of the selected rows.
_EXPORTS = {
    ("conversations_conversation_changelist", "export"),
    ("conversations_rating_changelist", "export_as_csv"),
    ("conversations_rating_changelist", "export_as_json"),
}

#: A tool that is called as another user reads what the user has written.
_DRY_RUN = "tools_tool_dry_run"
_INSPECT = "conversations.inspect_turn"

View = Callable[..., HttpResponseBase]


class ReasonForm(forms.Form):
    reason = forms.CharField(
        label=_("Reason"),
        min_length=5,
        max_length=500,
        strip=True,
        widget=forms.TextInput({"class": "vTextField"}),
    )


def guard_reading(view: View) -> View:
    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        match = request.resolver_match
        name = (match.url_name if match else "") or ""
        # A page of the admin posts a list of actions, one of which Django runs.
        actions = request.POST.getlist("action")
        if any((name, action) in _EXPORTS for action in actions):
            return _ask(request) or view(request, *args, **kwargs)
        if name == _DRY_RUN and request.method == "POST":
            return _run_tool(view, request, args, kwargs)
        if name not in PAGES:
            return view(request, *args, **kwargs)
        return _read(view, request, PAGES[name], args, kwargs)

    return respond


def _read(
    view: View,
    request: HttpRequest,
    page: tuple[str, str, str],
    args: Any,
    kwargs: dict[str, Any],
) -> HttpResponseBase:
    label, owner_of, argument = page
    model = apps.get_model(label if "." in label else f"conversations.{label}")
    text = kwargs[argument]
    if argument == "object_id":  # Django's own pages write "_" as "_5F"
        text = unquote(text)
    try:
        key = model._meta.pk.to_python(text)
        rows = model._base_manager.filter(pk=key).values_list(owner_of, flat=True)
        found = list(rows[:1])
    except (ValueError, OverflowError, forms.ValidationError):
        return view(request, *args, **kwargs)  # it answers that there is no such row
    if not found or found[0] == request.user.pk:
        return view(request, *args, **kwargs)
    if form := _ask(request):
        return _refusal(view, request, args, kwargs) or form
    if request.method != "POST":
        current_act().is_reading = True
    response = view(request, *args, **kwargs)
    if response.status_code == 200:
        record_event(
            "content.read",
            target=(model._meta.label_lower, key),
            subject=found[0],
            reason=request.session.get(READING_REASON, ""),
        )
    return response


def _run_tool(
    view: View, request: HttpRequest, args: Any, kwargs: dict[str, Any]
) -> HttpResponseBase:
    users = get_user_model()._default_manager
    user = users.filter(username=request.POST.get("username", "").strip()).first()
    staff: Any = request.user
    if user is None or user == staff or not staff.has_perm(_INSPECT):
        return view(request, *args, **kwargs)  # its form refuses other users
    if form := _ask(request):
        return form
    response = view(request, *args, **kwargs)
    if (getattr(response, "context_data", None) or {}).get("done"):
        record_event(
            "content.read",
            target=("tools.tool", kwargs["pk"]),
            subject=user,
            reason=request.session.get(READING_REASON, ""),
        )
    return response


def _refusal(
    view: View, request: HttpRequest, args: Any, kwargs: dict[str, Any]
) -> HttpResponseBase | None:
    """The page's own refusal, so that staff who may not see it are asked for no reason;
    None if they may. The view runs in a transaction that is rolled back, and its
    template is not rendered."""
    if request.method != "GET":
        return None
    with transaction.atomic():
        response = view(request, *args, **kwargs)
        transaction.set_rollback(True)
    return None if response.status_code == 200 else response


def _ask(request: HttpRequest) -> HttpResponse | None:
    """The page that asks why, unless this session has a reason."""
    if not settings.READING_NEEDS_REASON or request.session.get(READING_REASON):
        return None
    query = urlencode({"next": request.get_full_path()})
    return redirect(f"{reverse('admin:reading_reason')}?{query}")


class ReasonPage:
    def __init__(self, site: AdminSite) -> None:
        self._site = site

    def urls(self) -> list[URLPattern]:
        view = self._site.admin_view(self.reason_view)
        return [path("reason/", view, name="reading_reason")]

    def reason_view(self, request: HttpRequest) -> HttpResponse:
        wanted = request.POST.get("next") or request.GET.get("next", "")
        if not url_has_allowed_host_and_scheme(wanted, {request.get_host()}):
            wanted = reverse("admin:index")
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if form.is_bound and form.is_valid():
            request.session[READING_REASON] = form.cleaned_data["reason"]
            return redirect(wanted)
        context = {
            **self._site.each_context(request),
            "title": _("Why do you read this?"),
            "form": form,
            "next": wanted,
        }
        return TemplateResponse(request, "admin/audit/reason.html", context)

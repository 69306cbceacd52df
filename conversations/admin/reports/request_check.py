"""The admin's page *Would this request pass?*"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from conversations.models.access_token import AccessToken
from conversations.staff.request_check import ImaginedRequest, check_request

PERMISSIONS = ("auth.view_user", "llm.view_usage")
MAX_TOKENS = 10_000_000
MAX_LISTED = 100  # access tokens of a user

ENTRY_POINTS = {
    "page": _("the chat, signed in"),
    "rest": _("the REST API"),
    "gateway": _("the gateway (/v1)"),
}


class RequestCheckForm(forms.Form):
    user = forms.CharField(label=_("User"), max_length=150)
    entry_point = forms.ChoiceField(
        label=_("Through"), choices=list(ENTRY_POINTS.items())
    )
    token = forms.ModelChoiceField(
        label=_("Access token"),
        queryset=AccessToken.objects.none(),
        required=False,
        help_text=_("Empty: signed in with a browser. Show once to list the user's."),
    )
    model = forms.CharField(
        label=_("Model"),
        max_length=300,
        required=False,
        help_text=_("A name as programs write it; empty for the default model."),
    )
    prompt_tokens = forms.IntegerField(
        label=_("Tokens of the prompt"), min_value=0, max_value=MAX_TOKENS
    )
    max_output_tokens = forms.IntegerField(
        label=_("Output tokens at most"),
        min_value=1,
        max_value=MAX_TOKENS,
        required=False,
        help_text=_("Empty: the request sets no limit."),
    )
    address = forms.CharField(
        label=_("Client's address"),
        max_length=100,
        required=False,
        help_text=_("Needed for tokens that are valid at some addresses only."),
    )

    def __init__(self, *args: Any, visible: QuerySet[AccessToken], **kwargs: Any):
        """`visible`: the access tokens that the staff may see."""
        super().__init__(*args, **kwargs)
        name = str(self.data.get("user") or self.initial.get("user") or "")
        own = visible.filter(user__username=name).order_by("-pk")
        token: Any = self.fields["token"]
        token.queryset = own
        token.choices = [
            ("", "---------"),
            *((row.pk, row) for row in own[:MAX_LISTED]),
        ]

    def clean_user(self) -> User:
        found = User.objects.filter(username=self.cleaned_data["user"]).first()
        if found is None:
            raise forms.ValidationError(_("There is no user of this name."))
        return found


class RequestCheckPage:
    def __init__(self, site: AdminSite) -> None:
        self._site = site

    def urls(self) -> list[URLPattern]:
        view = self._site.admin_view(never_cache(require_GET(self.show)))
        return [path("request-check/", view, name="request_check")]

    def show(self, request: HttpRequest) -> HttpResponse:
        if not request.user.has_perms(PERMISSIONS):
            raise PermissionDenied
        visible = AccessToken.objects.select_related("user")
        if not request.user.is_superuser:  # as in the list of access tokens
            visible = visible.filter(user=request.user.pk)
        usual = {
            "user": request.GET.get("user") or request.user.get_username(),
            "entry_point": "page",
            "prompt_tokens": 1000,
        }
        sent = request.GET if "prompt_tokens" in request.GET else None
        form = RequestCheckForm(sent, initial=usual, visible=visible)
        context = {
            **self._site.each_context(request),
            "title": _("Would this request pass?"),
            "form": form,
        }
        if sent is not None and form.is_valid():
            context["report"] = check_request(ImaginedRequest(**form.cleaned_data))
        status = 400 if sent is not None and not form.is_valid() else 200
        template = "admin/conversations/request_check.html"
        return TemplateResponse(request, template, context, status=status)

"""The page on which a user must replace a password that was printed or set by staff."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from conversations.access.session_marks import PASSWORD_CHANGE, is_restricted
from conversations.access.sessions import end_others
from conversations.forms.password_change_form import ThrottledPasswordChangeForm

_SAME = _("Choose another password than the one that you were given.")


class OwnPasswordForm(ThrottledPasswordChangeForm):
    """The new password must differ from the one that was printed or set by staff."""

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        new = cleaned.get("new_password1")
        if new and self.user.check_password(new):
            self.add_error("new_password1", _SAME)
        return cleaned


@method_decorator(never_cache, name="dispatch")
class RequiredPasswordView(PasswordChangeView):
    form_class = OwnPasswordForm
    template_name = "accounts/required_password.html"
    success_url = reverse_lazy("chat")

    def dispatch(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        if request.user.is_authenticated and not is_restricted(request.session):
            return redirect("account")
        return super().dispatch(request, *args, **kwargs)

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "request": self.request}

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        response = super().form_valid(form)
        self.request.session.pop(PASSWORD_CHANGE, None)
        end_others(self.request.user, self.request.session.session_key)
        return response

    def form_invalid(self, form: PasswordChangeForm) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=400)

"""Account page: change the password, list and end the user's sessions."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from conversations.access.reauthentication import requires_proof
from conversations.access.sessions import (
    end_others,
    sessions_of,
    sign_out_others,
    sign_out_session,
)
from conversations.forms.password_change_form import ThrottledPasswordChangeForm
from conversations.models import SignedInSession
from conversations.pages.notices.next_page_message import say_done


@method_decorator(never_cache, name="dispatch")
class AccountView(PasswordChangeView):
    form_class = ThrottledPasswordChangeForm
    template_name = "conversations/account.html"
    success_url = reverse_lazy("password-changed")
    extra_context = {"is_changed": False}

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "request": self.request}

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        """Django gives this session a new key; all other sessions are ended."""
        response = super().form_valid(form)
        end_others(self.request.user, self.request.session.session_key)
        return response

    def form_invalid(self, form: PasswordChangeForm) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=400)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        own = self.request.session.session_key
        rows = sessions_of(self.request.user)
        context = {
            "sessions": [{"row": row, "is_own": row.session_key == own} for row in rows]
        }
        return super().get_context_data(**context, **kwargs)


@login_required
@require_POST
@requires_proof("POST")
def end_session(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(SignedInSession, pk=pk, user_id=request.user.pk)
    sign_out_session(row)
    if row.session_key != request.session.session_key:
        say_done(request, _("The session was ended."))
    return redirect("account")


@login_required
@require_POST
@requires_proof("POST")
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    sign_out_others(request.user, request.session.session_key)
    say_done(request, _("All other sessions were ended."))
    return redirect("account")

"""The sign-in page."""

from __future__ import annotations

from typing import Any

from allauth.account.utils import perform_login
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.http import HttpResponse

from project.accounts.models import IdentityProvider


class SignInView(LoginView):
    """Django's view checks name and password, with the delays of django-axes; then
    django-allauth asks for the second factor, if the account has one."""

    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response: HttpResponse = perform_login(
            self.request,
            form.get_user(),
            email_verification="none",
            redirect_url=self.get_success_url(),
        )
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(
            **kwargs,
            sends_mail=settings.SENDS_MAIL,
            providers=IdentityProvider.objects.filter(enabled=True).exclude(
                kind=IdentityProvider.Kind.LDAP  # whose people use the form
            ),
        )

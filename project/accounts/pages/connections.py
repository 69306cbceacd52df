"""Pages of the identities that are connected to one's account."""

from __future__ import annotations

from typing import Any

from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.views import ConnectionsView
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET


@method_decorator([login_required, never_cache], name="dispatch")
class IdentitiesView(ConnectionsView):
    """django-allauth removes connections; the template has a form for each."""

    template_name = "accounts/identities.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        own = list(SocialAccount.objects.filter(user=self.request.user))
        names = {each.provider for each in own}
        providers = get_adapter().list_providers(self.request)
        labels = {each.app.provider_id: each.name for each in providers}
        context: dict[str, Any] = {
            "identities": [(each, labels.get(each.provider, "")) for each in own],
            "offered": [
                (each.name, each.get_login_url(self.request))
                for each in providers
                if each.app.provider_id not in names
            ],
        }
        return {**super().get_context_data(**kwargs), **context}


connections = IdentitiesView.as_view()


@login_required
@never_cache
@require_GET
def confirm(request: HttpRequest) -> HttpResponse:
    """For a person without password and second factor: sign in at the provider again,
    which is asked to ask for the password there, and to say when it last did."""
    names = SocialAccount.objects.filter(user=request.user).values_list(
        "provider", flat=True
    )
    providers = [
        (each.name, each.get_login_url(request, auth_params="prompt=login&max_age=0"))
        for each in get_adapter().list_providers(request)
        if each.app.provider_id in set(names)
    ]
    context = {"providers": providers, "next": request.GET.get("next", "")}
    return render(request, "accounts/confirm_by_provider.html", context)

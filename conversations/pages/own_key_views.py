"""The page on which people store and delete their own keys for providers."""

from __future__ import annotations

import secrets
from typing import Any

from asgiref.sync import async_to_sync
from django import forms
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from conversations.pages.notices.next_page_message import say_done, say_saved
from llm.concurrency.thread_lending import lend_thread
from llm.errors import LLMError
from llm.keys.key_sign_in import (
    authorize_url,
    exchange_code,
    make_verifier,
    sign_in_of,
)
from llm.keys.own_keys import (
    MAX_KEY,
    OwnKeySlot,
    delete_own_key,
    find_own_key,
    own_keys_of,
    store_own_key,
)

_SESSION = "own_key_sign_in"


class OwnKeyForm(forms.Form):
    secret = forms.CharField(
        label=_("Key"),
        max_length=MAX_KEY,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
        help_text=_("It is stored encrypted and never shown again."),
    )


@login_required
@never_cache
@require_GET
def own_keys(request: HttpRequest) -> HttpResponse:
    return _page(request)


@login_required
@require_POST
def store_key(request: HttpRequest, provider_id: int) -> HttpResponse:
    own = _find(request, provider_id)
    form = OwnKeyForm(request.POST)
    if form.is_valid():
        try:
            store_own_key(request.user, own.provider, form.cleaned_data["secret"])
            say_saved(request)
            return redirect("own-keys")
        except ValidationError as exc:
            form.add_error("secret", exc.messages[0])
    return _page(request, form=form, form_for=provider_id, status=400)


@login_required
@require_POST
def delete_key(request: HttpRequest, provider_id: int) -> HttpResponse:
    if not delete_own_key(request.user, provider_id):
        raise Http404
    say_done(request, gettext("Your key was deleted."))
    return redirect("own-keys")


@login_required
@require_POST
def begin_sign_in(request: HttpRequest, provider_id: int) -> HttpResponse:
    """Send the person to the provider, which returns to `end_sign_in`."""
    own = _find(request, provider_id)
    if (sign_in := sign_in_of(own.provider)) is None:
        raise Http404
    verifier, state = make_verifier(), secrets.token_urlsafe(24)
    request.session[_SESSION] = {
        "provider": provider_id,
        "verifier": verifier,
        "state": state,
    }
    path = reverse("end-key-sign-in", args=[provider_id, state])
    callback_url = request.build_absolute_uri(path)
    return redirect(authorize_url(sign_in, callback_url, verifier))


@login_required
@never_cache
@require_GET
def end_sign_in(request: HttpRequest, provider_id: int, state: str) -> HttpResponse:
    """Exchange the code for a key, once, in the session that began the sign-in."""
    begun = request.session.pop(_SESSION, None) or {}
    own = _find(request, provider_id)
    sign_in, code = sign_in_of(own.provider), request.GET.get("code", "")
    is_own = begun.get("provider") == provider_id and secrets.compare_digest(
        str(begun.get("state", "")).encode(), state.encode()
    )
    if sign_in is None or not is_own or not code:
        problem = gettext(
            "This sign-in was not begun here, or it was cancelled. Try again."
        )
        return _page(request, problem=problem, status=400)
    try:
        with lend_thread():
            key = async_to_sync(exchange_code)(
                own.provider, sign_in, code[:MAX_KEY], begun["verifier"]
            )
        store_own_key(request.user, own.provider, key)
    except LLMError as exc:
        return _page(request, problem=str(exc), status=502)
    except ValidationError:
        problem = gettext("The provider sent a key that cannot be used. Try again.")
        return _page(request, problem=problem, status=502)
    say_saved(request)
    return redirect("own-keys")


def _find(request: HttpRequest, provider_id: int) -> OwnKeySlot:
    if (own := find_own_key(request.user, provider_id)) is None:
        raise Http404
    return own


def _page(
    request: HttpRequest,
    *,
    form: OwnKeyForm | None = None,
    form_for: int | None = None,
    problem: str = "",
    status: int = 200,
) -> HttpResponse:
    rows = [
        {
            "provider": own.provider,
            "key": own.key,
            "sign_in": sign_in_of(own.provider) is not None,
            "form": form
            if form is not None and own.provider.pk == form_for
            else OwnKeyForm(auto_id=f"key-{own.provider.pk}-%s"),
        }
        for own in own_keys_of(request.user)
    ]
    context: dict[str, Any] = {"rows": rows, "problem": problem}
    return render(request, "conversations/own_keys.html", context, status=status)

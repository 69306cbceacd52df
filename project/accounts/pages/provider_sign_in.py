"""Pages that lead to an identity provider and back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect import views
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import (
    require_GET,
    require_http_methods,
    require_POST,
)
from requests import RequestException

logger = logging.getLogger(__name__)

MAX_SAML_RESPONSE = 300_000  # bytes

View = Callable[..., HttpResponse]
#: What a provider that is down, or that speaks no OpenID Connect, causes.
_BROKEN = (RequestException, OAuth2Error, ValueError, LookupError, TypeError)
#: What parsers of XML raise: lxml's errors are syntax errors.
_NO_XML = (SyntaxError, ValueError, LookupError, TypeError, AttributeError)


def _report_broken_provider(view: View) -> View:
    @wraps(view)
    def respond(request: HttpRequest, provider_id: str) -> HttpResponse:
        try:
            return view(request, provider_id)
        except SocialApp.DoesNotExist as exc:
            raise Http404 from exc
        except _BROKEN as exc:
            logger.warning(
                "identity provider %s does not work: %s",
                provider_id,
                type(exc).__name__,
            )
            return render(request, "accounts/provider_broken.html", status=502)

    return respond


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@_report_broken_provider
def begin(request: HttpRequest, provider_id: str) -> HttpResponse:
    """The way to the provider, after a click here: another site cannot sign people in.

    The page names the address itself instead of redirecting: the policy for forms
    (`form-action 'self'`) holds for redirects of their answers, too.
    """
    provider = get_adapter().get_provider(request, provider_id)
    if request.method != "POST":
        return _page(request, provider)
    answer = provider.redirect_from_request(request)
    if not isinstance(answer, HttpResponseRedirect):
        return answer  # type: ignore[no-any-return]
    page = _page(request, provider, address=answer.url)
    page["Refresh"] = f"0; url={answer.url}"
    return page


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def begin_saml(request: HttpRequest, organization_slug: str) -> HttpResponse:
    return begin(request, organization_slug)


@never_cache
@csrf_exempt  # a provider sends the form; the response answers a request of a session
@require_POST
def receive_saml(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """Receive a provider's response and store it in a session of its own. Anybody can
    send one, so the provider must exist, and the size is limited."""
    from allauth.socialaccount.providers.saml import views as saml_views  # an extra

    try:
        get_adapter().get_provider(request, organization_slug)
    except SocialApp.DoesNotExist as exc:
        raise Http404 from exc
    if len(request.body) > MAX_SAML_RESPONSE:
        return HttpResponse(status=413)
    answer: HttpResponse = saml_views.acs(request, organization_slug)
    for cookie in answer.cookies.values():
        cookie["httponly"] = True
    return answer


@never_cache
@require_GET
def end_saml(request: HttpRequest, organization_slug: str) -> HttpResponse:
    """Read the response that was received. What is no XML at all makes the libraries
    raise whatever their parsers raise."""
    from allauth.socialaccount.providers.saml import views as saml_views

    try:
        answer: HttpResponse = saml_views.finish_acs(request, organization_slug)
    except _NO_XML as exc:
        logger.warning(
            "identity provider %s: a response that cannot be read: %s",
            organization_slug,
            type(exc).__name__,
        )
        provider = get_adapter().get_provider(request, organization_slug)
        answer = render_authentication_error(request, provider)
        answer.status_code = 400
    return answer


@require_GET
def show_saml_metadata(request: HttpRequest, organization_slug: str) -> HttpResponse:
    from allauth.socialaccount.providers.saml import views as saml_views

    answer: HttpResponse = saml_views.metadata(request, organization_slug)
    return answer


@csrf_exempt
def refuse_saml_logout(request: HttpRequest, organization_slug: str) -> HttpResponse:
    raise Http404


@never_cache
@require_GET
@_report_broken_provider
def end(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Where the provider sends the person back to."""
    answer: HttpResponse = views.callback(request, provider_id)
    return answer


def _page(request: HttpRequest, provider: Any, address: str = "") -> HttpResponse:
    context = {
        "provider": provider,
        "address": address,
        "next": request.GET.get("next", ""),
        "process": request.GET.get("process", "login"),
    }
    return render(request, "accounts/to_provider.html", context)

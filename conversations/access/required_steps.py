"""The steps that block a session until its user has done them: choose another password,
use a second factor, accept the terms of use."""

from __future__ import annotations

from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.urls import ResolverMatch, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from conversations.access.policy import terms
from conversations.access.session_marks import (
    SECOND_FACTOR,
    TERMS,
    is_restricted,
    lacks_second_factor,
)

#: URL names that a person who must change the password may use.
_ALWAYS_ALLOWED = {
    "required-password",
    "logout",
    "manifest",
    "service-worker",
    "offline",
    "script-texts",
}
#: Also allowed until the second factor was used, with the pages that set one up.
_BEFORE_SECOND_FACTOR = {
    *_ALWAYS_ALLOWED,
    *("account_reauthenticate", "confirm-by-provider"),
}
#: Pages about second factors that change none, and show no recovery codes.
_WITHOUT_OWN_FACTOR = {
    *("mfa_index", "mfa_list_webauthn"),
    *("mfa_reauthenticate", "mfa_reauthenticate_webauthn"),
    *("mfa_authenticate", "mfa_login_webauthn"),
}
#: Also allowed until the terms are accepted: reading and accepting them, exporting all
#: data and deleting the account. Names of pages and of REST.
_BEFORE_TERMS = {
    *_ALWAYS_ALLOWED,
    *("terms", "export-all", "export-download", "delete-account"),
    *("account_reauthenticate", "mfa_reauthenticate", "mfa_reauthenticate_webauthn"),
    "confirm-by-provider",
}
#: Pages of the admin on which staff could make a token for themselves. The rest of the
#: admin stays open, as staff write the terms there.
_ADMIN_NEEDS_TERMS = {"conversations_accesstoken_add"}


def block_for_required_step(request: HttpRequest) -> HttpResponseBase | None:
    """The response in place of the view's: a page is redirected to the page of the
    required step, others are refused with status 403. None if no step is required."""
    match = request.resolver_match
    if is_restricted(request.session):
        if match is not None and match.url_name in _ALWAYS_ALLOWED:
            return None
        return _ask_for_password(request)
    if _changes_second_factors(match) and owes_own_factor(request):
        return _ask_for_second_factor(request)
    if lacks_second_factor(request.session) and request.user.is_authenticated:
        # The terms come after it: neither page may lead to the other for ever.
        if _is_about_second_factors(match):
            return None
        return _ask_for_second_factor(request)
    if _are_terms_due(request, match):
        return _ask_for_terms(request)
    return None


def _ask_for_password(request: HttpRequest) -> HttpResponseBase:
    if _is_page(request):
        return redirect("required-password")
    return _refusal(_("Change your password first."), "password_change_required")


def _is_about_second_factors(match: ResolverMatch | None) -> bool:
    name = _name_outside_admin(match)
    return name.startswith("mfa_") or name in _BEFORE_SECOND_FACTOR


def _changes_second_factors(match: ResolverMatch | None) -> bool:
    name = _name_outside_admin(match)
    return name.startswith("mfa_") and name not in _WITHOUT_OWN_FACTOR


def _name_outside_admin(match: ResolverMatch | None) -> str:
    """The URL name of a page; the admin's own begin with `mfa_` for its tables, too."""
    if match is None or "admin" in match.app_names:
        return ""
    return match.url_name or ""


def owes_own_factor(request: HttpRequest) -> bool:
    """Whether the account has a second factor that the session never used: the factor
    was added elsewhere since the sign-in."""
    if request.session.get(SECOND_FACTOR) or not request.user.is_authenticated:
        return False
    types = [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]
    return bool(get_adapter().is_mfa_enabled(request.user, types))


def _ask_for_second_factor(request: HttpRequest) -> HttpResponseBase:
    text = _("Set up a second factor first.")
    if not _is_page(request):
        return _refusal(text, "second_factor_required")
    return lead_to_second_factor(request, text)


def lead_to_second_factor(request: HttpRequest, text: str) -> HttpResponseBase:
    """Redirect to the page that asks for the account's second factor. Without one, show
    the text on the page that sets one up."""
    types, adapter = Authenticator.Type, get_adapter()
    if adapter.is_mfa_enabled(request.user, [types.TOTP]):
        page = "mfa_reauthenticate"
    elif adapter.is_mfa_enabled(request.user, [types.WEBAUTHN]):
        page = "mfa_reauthenticate_webauthn"
    else:
        messages.warning(request, text)
        return redirect("mfa_index")
    return redirect(f"{reverse(page)}?{urlencode({'next': request.get_full_path()})}")


def _are_terms_due(request: HttpRequest, match: ResolverMatch | None) -> bool:
    number = terms.newest_number()
    if not number or request.session.get(TERMS, 0) >= number:
        return False
    if match is None or not _needs_terms(match):
        return False
    if request.user.pk is None:
        return False
    if not terms.has_accepted(request.user.pk, number):
        return True
    terms.mark_accepted(request.session)  # accepted in another browser
    return False


def _needs_terms(match: ResolverMatch) -> bool:
    if "admin" in match.app_names:
        return match.url_name in _ADMIN_NEEDS_TERMS
    return match.url_name not in _BEFORE_TERMS


def _ask_for_terms(request: HttpRequest) -> HttpResponseBase:
    if not _is_page(request):
        error = terms.not_accepted()
        return _refusal(str(error), error.openai_code)
    page = reverse("terms")
    if request.method in ("GET", "HEAD"):
        page += "?" + urlencode({"next": request.get_full_path()})
    return redirect(page)


def _refusal(message: str, code: str) -> HttpResponseBase:
    error = {
        "message": message,
        "type": "permission_error",
        "code": code,
        "param": None,
    }
    return JsonResponse({"error": error}, status=403)


def _is_page(request: HttpRequest) -> bool:
    return not request.path.startswith("/api/") and "text/html" in request.headers.get(
        "Accept", "text/html"
    )

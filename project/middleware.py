"""What is done before and after the view of every request: Parley's middlewares, except
those of `conversations.access`, for deletions.

In the order of `MIDDLEWARE`, between those of the libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_logged_out
from django.http import HttpRequest, HttpResponseBase, HttpResponseNotAllowed
from django.middleware.locale import LocaleMiddleware
from django.shortcuts import render
from django.utils import translation
from django.utils.deprecation import MiddlewareMixin

from conversations.access.required_steps import block_for_required_step
from conversations.access.sessions import note_use
from conversations.access.sign_in_attempts import remember_browser
from conversations.audit.act import Act, Channel, acting
from conversations.audit.watch import record_rest
from conversations.models.user_settings import UserSettings
from conversations.pages.unsent.views import give_back, give_back_before
from project import health
from project.error_page import wants_page
from project.monitoring.exposition import serve_metrics

#: Browser features that no page uses; frames may not use them either.
_UNUSED = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer",
        "browsing-topics",
        "camera",
        "display-capture",
        "geolocation",
        "gyroscope",
        "magnetometer",
        "midi",
        "payment",
        "usb",
    )
)
#: Only our own pages may hear, for dictation; frames may not.
PERMISSIONS_POLICY = f"{_UNUSED}, microphone=(self)"
_OF_READERS = ("cookie", "accept-language")  # request headers
_CHANNELS = (
    ("/admin/", Channel.ADMIN),
    ("/api/", Channel.REST),
    ("/scim/", Channel.REST),
)


def set_headers(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Set security and cache headers on every response."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        if response.headers.get("Content-Type", "").startswith("application/json"):
            response.headers.setdefault("Cache-Control", "no-store")
        if "immutable" in response.headers.get("Cache-Control", ""):
            _drop_reader_from_vary(response)
        if getattr(request, "has_signed_out", False):
            # Not "storage" or "cookies": they hold the drafts of other accounts and the
            # cookie that identifies the browser.
            response.headers["Clear-Site-Data"] = '"cache"'
        return response

    return respond


def answer_supervisors(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Serve the probes, and `/metrics` if it is on.

    It precedes all middleware that checks the Host header, because supervisors connect
    by IP address, which ALLOWED_HOSTS need not contain.
    """
    views: dict[str, Callable[[HttpRequest], HttpResponseBase]] = {
        "/healthz": health.healthz,
        "/readyz": health.readyz,
    }
    if settings.MONITORING.serves_metrics:
        views["/metrics"] = serve_metrics

    def answer(request: HttpRequest) -> HttpResponseBase:
        return views.get(request.path, get_response)(request)

    return answer


def note_sessions(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Store the use of sessions, and remember a browser in which a user has signed in.

    It must come before Django's session middleware, which saves the session.
    """

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if (name := getattr(request, "browser_to_remember", None)) is not None:
            remember_browser(request, name, response)
        session = getattr(request, "session", None)
        if session is not None and session.accessed:
            note_use(request)
        return response

    return respond


def note_requests(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """What a request does is the act of its user."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        path = request.path_info
        named = (channel for prefix, channel in _CHANNELS if path.startswith(prefix))
        act = Act(channel=next(named, Channel.PAGE), request=request)
        if act.channel == Channel.ADMIN and request.method == "POST":
            act.waiting = {}
        with acting(act):
            response = get_response(request)
            if act.waiting:
                record_rest(act)
        return response

    return respond


class RequiredSteps(MiddlewareMixin):
    """Block a session until its user has done a required step. Requests of programs
    have no session. A form that comes without a session, or before the step, is given
    back."""

    def process_view(
        self, request: HttpRequest, view: object, args: object, kwargs: object
    ) -> HttpResponseBase | None:
        step = None
        if settings.SESSION_COOKIE_NAME in request.COOKIES:
            step = block_for_required_step(request)
        # Read here, as programs' requests also come this way. Scripts follow redirects.
        is_page = "text/html" in request.headers.get("Accept", "")
        if request.method != "POST" or not is_page:
            return step
        return give_back_before(request, step) if step else give_back(request)


def explain_addresses_of_forms(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Say where to go to a person who has opened the address of a form: after signing
    in again, or from the address bar."""

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if (
            not isinstance(response, HttpResponseNotAllowed)
            or request.method != "GET"
            or not wants_page(request.headers.get("Accept", ""))
            or request.path.startswith("/api/")
        ):
            return response
        match = request.resolver_match
        context = {"conversation_id": match and match.kwargs.get("conversation_id")}
        page = render(request, "405.html", context, status=response.status_code)
        page.headers["Allow"] = response.headers["Allow"]
        return page

    return respond


class UserLanguageMiddleware(LocaleMiddleware):
    """Answer in the language that the user has set, else the browser's. Sets
    `request.user_settings` for a browser that is signed in."""

    def process_request(self, request: HttpRequest) -> None:
        super().process_request(request)
        if settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return
        if (user_id := request.user.pk) is None:
            return
        found = UserSettings.objects.for_user(user_id)
        with_settings: Any = request
        with_settings.user_settings = found
        if found.language in dict(settings.LANGUAGES):
            translation.activate(found.language)
            with_settings.LANGUAGE_CODE = translation.get_language()


def _drop_reader_from_vary(response: HttpResponseBase) -> None:
    """What never changes is the same for every reader. The middlewares of sessions and
    languages run for every page, and name what they have read themselves."""
    names = [name.strip() for name in response.headers.get("Vary", "").split(",")]
    kept = [name for name in names if name.lower() not in _OF_READERS]
    del response["Vary"]
    if kept and kept != [""]:
        response["Vary"] = ", ".join(kept)


def note_sign_out(request: Any = None, **_: Any) -> None:
    if request is not None:
        request.has_signed_out = True


user_logged_out.connect(note_sign_out)

"""The language of a reader: the one that the user has set, else the browser's."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from django.utils import translation

from conversations.access.session_user import Headers
from conversations.models.user_settings import UserSettings


def language_of(user_id: int, accepted: str) -> str:
    """The language that the user has set, else one that the browser accepts."""
    found = UserSettings.objects.for_user(user_id).language
    if found in dict(settings.LANGUAGES):
        return found
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = accepted
    return translation.get_language_from_request(request)


def accepted_languages(headers: Headers) -> str:
    """The header `Accept-Language` of an ASGI scope; "" without one."""
    found = (value for name, value in headers if name == b"accept-language")
    return next(found, b"").decode("latin-1")
